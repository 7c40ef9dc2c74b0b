//! Requests of guests: their VFs, and settings on top of the operator's document.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use model::state::{
    Actual, ActualVpf, ActualVpfVf, Adapter, Facts, GuestState, PortSettings, Problem, State,
    VfSettings, Vpf, VpfVf, allocate,
};
use serde_json::Value;
use vhost_user::{Listener, SocketAccess};

use super::super::events::{Cause, EventKind};
use super::{Manager, allocations};
use crate::compile::{LiveLinks, compile};
use crate::guests::{
    Channel, ChannelService, Dropped, Errno, GuestError, Overlay, Request, RequestHandler, shown,
};
use crate::log_limiter::LogLimiter;
use crate::plane::PlaneError;
use crate::store::{Directory, Store, StoreError};

/// Oldest state that a guest sees: limits queries of the data plane.
const FRESH: Duration = Duration::from_millis(100);

/// Guest control of the manager.
#[derive(Debug)]
pub(super) struct Guests {
    /// Guests' settings, as far as granted and valid.
    overlay: Overlay,
    /// `true` if the overlay is on disk.
    kept: bool,
    /// Thread that serves the channels, once started.
    service: Option<ChannelService>,
    channels: Vec<Open>,
    /// Time of the last query of the data plane for a guest.
    looked: Option<Instant>,
    /// Limit of log lines of all guests.
    log: LogLimiter,
    /// Users that may connect to the channels.
    access: SocketAccess,
}

impl Default for Guests {
    fn default() -> Guests {
        Guests {
            overlay: Overlay::default(),
            kept: false,
            service: None,
            channels: Vec::new(),
            looked: None,
            log: LogLimiter::default(),
            access: SocketAccess::OWNER,
        }
    }
}

/// An open channel. Drop removes its socket file at once; the thread may still hold the socket.
#[derive(Debug, Clone)]
pub(super) struct Open {
    channel: Channel,
    file: Arc<Listener>,
}

impl Open {
    fn bind(vpf: &str, path: &Path, access: SocketAccess) -> Result<Open> {
        let file = Listener::bind_for(path, access)?;
        let socket = Listener::inherit(file.as_fd().try_clone_to_owned()?, path, None)?;
        let channel =
            Channel { vpf: vpf.to_owned(), socket: Arc::new(socket), connected: Arc::default() };
        Ok(Open { channel, file: Arc::new(file) })
    }
}

impl Guests {
    /// Loads the stored settings, as far as the stored document allows them.
    pub(super) fn stored(store: &mut Store<Directory>) -> Result<Guests, StoreError> {
        let (stored, state) = (store.guests::<Overlay>()?, &store.record().state);
        let fits = |state: &State| fits(state, &Actual::default());
        let (overlay, dropped) = stored.fitting(state, fits);
        Ok(Guests { overlay, kept: dropped.is_empty(), ..Guests::default() })
    }

    pub(super) fn upon(&self, state: &State) -> State {
        self.overlay.upon(state)
    }

    /// Opens the channels that a state adds. Dropping them undoes this if the state is not applied.
    pub(super) fn open(&self, to: &State) -> Result<Vec<Open>, PlaneError> {
        if self.service.is_none() {
            return Ok(Vec::new());
        }
        self.bind(to)
    }

    fn bind(&self, to: &State) -> Result<Vec<Open>, PlaneError> {
        let mut channels = Vec::new();
        for (i, vpf) in to.vpfs.iter().enumerate() {
            let Some(control) = &vpf.control else { continue };
            let path = Path::new(&control.socket);
            let known = self.channels.iter().find(|open| open.file.path() == path);
            channels.push(match known {
                Some(known) => {
                    let channel = Channel { vpf: vpf.name.clone(), ..known.channel.clone() };
                    Open { channel, ..known.clone() }
                }
                None => Open::bind(&vpf.name, path, self.access).map_err(|error| {
                    let field = format!("vpf[{i}].control.socket");
                    let allowed = "correct that, or write another path".to_owned();
                    let error = format!("cannot be opened: {error:#}");
                    PlaneError(Problem::new(field, &*control.socket, error, allowed).into())
                })?,
            });
        }
        Ok(channels)
    }

    /// Replaces the overlay and the served channels.
    pub(super) fn replace(&mut self, overlay: Overlay, channels: Vec<Open>) {
        self.kept &= overlay == self.overlay;
        self.overlay = overlay;
        self.channels = channels;
        if let Some(service) = &self.service {
            service.serve(self.channels.iter().map(|open| open.channel.clone()).collect());
        }
    }
}

/// `true` if a document with guests' settings is valid as a whole.
fn fits(state: &State, actual: &Actual) -> bool {
    refused(state, actual).is_ok()
}

fn refused(state: &State, actual: &Actual) -> Result<(), model::state::Problems> {
    state.check()?;
    let given = allocate(state, &Facts::of(actual));
    compile(state, &given, &LiveLinks::default(), None).map(drop)
}

/// Serves the guests of a manager, which the caller holds, on a thread that ends with the manager.
///
/// # Errors
/// A socket cannot be opened, or the system has no thread left.
pub fn serve_guests(shared: &Arc<Mutex<Manager>>, manager: &mut Manager) -> Result<()> {
    // The manager owns the thread, so the thread has only a weak reference.
    let weak = Arc::downgrade(shared);
    let gone = || GuestError::new(Errno::Io, "the host's daemon is ending");
    let answer: RequestHandler = Box::new(move |channel, request| {
        let manager = weak.upgrade().ok_or_else(gone)?;
        let mut manager = manager.lock().map_err(|_| gone())?;
        match manager.is_replaced() {
            false => manager.guest(channel, request),
            true => Err(gone()),
        }
    });
    let channels = manager.guests.bind(&manager.store.record().state);
    let channels = channels.map_err(|PlaneError(problems)| anyhow::anyhow!("{problems}"))?;
    manager.guests.service = Some(ChannelService::start(answer)?);
    let overlay = manager.guests.overlay.clone();
    manager.guests.replace(overlay, channels);
    manager.keep_guests();
    Ok(())
}

impl Manager {
    /// Sets the users that may connect to channels opened from now on.
    pub fn set_channel_access(&mut self, access: SocketAccess) {
        self.guests.access = access;
    }

    /// The state in force: the operator's with the guests' settings.
    pub(super) fn in_force(&self) -> State {
        self.guests.upon(self.state())
    }

    /// Guests' settings that a state allows, and the dropped ones.
    pub(super) fn guests_of(&self, to: &State) -> (Overlay, Vec<Dropped>) {
        self.guests.overlay.fitting(to, |state| fits(state, &self.seen))
    }

    pub(super) fn note_dropped(&mut self, dropped: Vec<Dropped>) {
        for Dropped { vpf, vf, names } in dropped {
            let text = format!("vf {vf}: the host took back {}", names.join(", "));
            self.events.add(EventKind::GuestControl, format!("vpf {vpf}"), text);
        }
    }

    /// Stores the guests' settings if they changed. A disk error is logged; the next change
    /// retries.
    pub(super) fn keep_guests(&mut self) {
        if self.guests.kept {
            return;
        }
        match self.store.keep_guests(&self.guests.overlay) {
            Ok(()) => self.guests.kept = true,
            Err(error) => self.events.add(EventKind::Refused, String::new(), error.to_string()),
        }
    }

    /// Handles a guest's request. Looks the virtual PF up only now: names may have changed since.
    ///
    /// # Errors
    /// The request is not granted, invalid or impossible; nothing has changed.
    pub fn guest(&mut self, at: &Channel, request: Request) -> Result<Value, GuestError> {
        let mut channels = self.guests.channels.iter().map(|open| &open.channel);
        let channel = channels.find(|open| Arc::ptr_eq(&open.socket, &at.socket));
        let vpf = channel.map(|channel| channel.vpf.clone()).ok_or_else(GuestError::taken)?;
        let what = request.to_string();
        let changes = request.changes();
        let result = self.answer_guest(&vpf, request);
        if changes {
            let outcome = match &result {
                Ok(_) => what,
                Err(refusal) => format!("refused: {what}: {refusal}"),
            };
            let subject = format!("vpf {vpf}");
            self.events.caused(EventKind::GuestControl, subject, outcome, Instant::now());
        }
        result
    }

    /// Handles a request at the channel of a virtual PF.
    ///
    /// # Errors
    /// As [`guest`](Self::guest).
    pub(crate) fn answer_guest(
        &mut self,
        name: &str,
        request: Request,
    ) -> Result<Value, GuestError> {
        let now = Instant::now();
        if self.guests.looked.is_none_or(|looked| now.duration_since(looked) > FRESH) {
            self.guests.looked = Some(now);
            self.actual();
        }
        let vpf = self.state().vpf(name).ok_or_else(GuestError::taken)?;
        let next = match request {
            Request::Hello => {
                let mac = self.state().adapter(&vpf.pf).map(|adapter| adapter.mac);
                return Ok(shown::hello(vpf, mac));
            }
            Request::List(None) => return Ok(shown::list(vpf, &self.vpf(vpf, &self.seen).vfs)),
            Request::List(Some(index)) => {
                let shown = self.vpf(vpf, &self.seen);
                let one =
                    shown.vfs.get(usize::from(index)).ok_or_else(|| GuestError::no_vf(index))?;
                return Ok(shown::list(vpf, std::slice::from_ref(one)));
            }
            Request::Set(index, change) => {
                self.guests.overlay.with(self.state(), name, index, &change)?
            }
            Request::Reset(index) => self.guests.overlay.without(self.state(), name, index)?,
        };
        self.set_guests(next)?;
        Ok(Value::Object(serde_json::Map::new()))
    }

    /// Applies and stores another overlay.
    fn set_guests(&mut self, next: Overlay) -> Result<(), GuestError> {
        if next == self.guests.overlay {
            return Ok(());
        }
        let io = |text: &str| GuestError::new(Errno::Io, text);
        if self.broken.is_some() {
            return Err(io("the host's daemon must be restarted first"));
        }
        let (from, to) = (self.in_force(), next.upon(self.state()));
        refused(&to, &self.seen).map_err(|problems| GuestError::of(&problems))?;
        let before = allocations(&self.plane.actual());
        let now = self.plane.reconcile(&from, &to);
        let now = now.map_err(|PlaneError(problems)| GuestError::of(&problems))?;
        if let Err(error) = self.store.keep_guests(&next) {
            let line = format!("a guest's settings could not be stored: {error}");
            self.guests.log.error(&line);
            if let Err(refused) = self.plane.reconcile(&to, &from) {
                self.broken = Some(format!("a guest's settings could not be undone: {refused}"));
            }
            return Err(io("the host could not store it"));
        }
        self.guests.kept = true;
        self.guests.overlay = next;
        self.events.paths(&before, &allocations(&now), Cause::Others);
        self.seen = now;
        Ok(())
    }

    /// All virtual PFs in force.
    pub fn vpfs(&self, actual: &Actual) -> Vec<ActualVpf> {
        self.state().vpfs.iter().map(|vpf| self.vpf(vpf, actual)).collect()
    }

    fn vpf(&self, vpf: &Vpf, actual: &Actual) -> ActualVpf {
        let state = self.state();
        let guest = |name: &str| {
            let adapter = actual.adapters.iter().find(|adapter| adapter.name == name);
            adapter.map_or(GuestState::Absent, |adapter| adapter.guest)
        };
        let vf = |(index, vf): (u16, &VpfVf)| {
            let adapter = vf.adapter.as_deref().and_then(|name| state.adapter(name));
            let set = self.guests.overlay.of(&vpf.name, index);
            let names = set.map_or_else(Vec::new, |set| set.names());
            ActualVpfVf {
                index,
                adapter: vf.adapter.clone(),
                vhost_vdpa: vf.vhost_vdpa.clone(),
                guest: vf.adapter.as_deref().map(guest),
                settings: adapter.map(|adapter| {
                    let in_force = set.map_or_else(|| adapter.clone(), |set| set.upon(adapter));
                    settings(state, &in_force)
                }),
                set_by_guest: names.into_iter().map(str::to_owned).collect(),
            }
        };
        let vfs: Vec<ActualVpfVf> = (0..).zip(&vpf.vfs).map(vf).collect();
        let enabled = vfs.iter().filter(|vf| vf.guest >= Some(GuestState::Driver)).count();
        let mut channels = self.guests.channels.iter().map(|open| &open.channel);
        let channel = channels.find(|channel| channel.vpf == vpf.name);
        let connected = channel.is_some_and(|it| it.connected.load(Ordering::Relaxed));
        ActualVpf {
            name: vpf.name.clone(),
            model: vpf.model,
            control: vpf.control.as_ref().map(|_| connected),
            pf: vpf.pf.clone(),
            guest: guest(&vpf.pf),
            enabled_vfs: enabled as u16,
            vfs,
        }
    }
}

/// Settings in force of an adapter, or of the VF that it names; the address is always the
/// adapter's.
fn settings(state: &State, adapter: &Adapter) -> VfSettings {
    let nic = state.nic_of(adapter);
    let own = nic.and_then(|nic| nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf));
    let PortSettings { vlan, spoof_check, trust, link_state, min_tx_mbps, max_tx_mbps, .. } =
        own.map_or(&adapter.settings, |vf| &vf.settings).clone();
    let mac = adapter.mac;
    VfSettings { mac, vlan, spoof_check, trust, link_state, min_tx_mbps, max_tx_mbps }
}
