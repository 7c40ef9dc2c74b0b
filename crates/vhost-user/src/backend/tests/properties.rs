//! Random requests, most of them nearly right: nothing panics, [`CheckedDevice`] finds every
//! guarantee kept, and a ring runs exactly when a model of six conditions says so.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A request to generate.
#[derive(Clone, Debug)]
struct Step {
    request: Request,
    payload: Vec<u8>,
    fds: usize,
    ask: bool,
}

fn step(request: Request, payload: Vec<u8>, fds: usize) -> Step {
    Step { request, payload, fds, ask: false }
}

fn ring_state() -> impl Strategy<Value = Step> {
    use Request::*;
    let request = prop::sample::select(vec![
        SetVringNum,
        SetVringBase,
        GetVringBase,
        SetVringEnable,
        SetVringEnable,
    ]);
    let num = prop_oneof![Just(0), Just(1), Just(256), Just(1), any::<u32>()];
    (request, 0..5u32, num)
        .prop_map(|(request, index, num)| step(request, state(index, num).as_bytes().to_vec(), 0))
}

fn ring_fd() -> impl Strategy<Value = Step> {
    use Request::*;
    let request = prop::sample::select(vec![SetVringKick, SetVringKick, SetVringCall, SetVringErr]);
    (request, 0..5u64, prop_oneof![9 => Just(1), 3 => Just(0), 1 => Just(2usize)]).prop_map(
        |(request, index, fds)| {
            let value = if fds == 0 { index | 0x100 } else { index };
            step(request, value.to_ne_bytes().to_vec(), fds)
        },
    )
}

fn ring_addr() -> impl Strategy<Value = Step> {
    (0..5u32, 0..3u64, 0..3u32).prop_map(|(index, shift, flags)| {
        let desc = 0x100 + shift * 8;
        let shifted = VringAddr { desc, flags: flags & VRING_LOG, log: 0x100, ..addresses(index) };
        step(Request::SetVringAddr, shifted.as_bytes().to_vec(), 0)
    })
}

fn any_region() -> impl Strategy<Value = RegionPayload> {
    (0..6u64, 0..3u64).prop_map(|(at, pages)| region(at * 0x1000, pages * 0x1000))
}

fn memory() -> impl Strategy<Value = Step> {
    let set = vec(any_region(), 0..4).prop_map(|regions| {
        let made = table(&regions);
        step(Request::SetMemTable, made.payload.clone(), regions.len())
    });
    let one = (any::<bool>(), any_region()).prop_map(|(add, region)| {
        let payload = SingleRegion { padding: 0, region }.as_bytes().to_vec();
        match add {
            true => step(Request::AddMemReg, payload, 1),
            false => step(Request::RemMemReg, payload, 0),
        }
    });
    prop_oneof![set, one]
}

fn number() -> impl Strategy<Value = Step> {
    use Request::*;
    let features = (0..5u64).prop_map(|at| {
        let fewer = OFFERED & !(1 << 15);
        let value = [OFFERED, FEATURES, fewer, OFFERED | LOG_ALL, 1 << 60][at as usize];
        step(SetFeatures, value.to_ne_bytes().to_vec(), 0)
    });
    let protocol = any::<bool>().prop_map(|all| {
        let value = if all { ProtocolFeatures::SUPPORTED.bits() } else { 0 };
        step(SetProtocolFeatures, value.to_ne_bytes().to_vec(), 0)
    });
    let other = prop::sample::select(vec![SetStatus, NetSetMtu, SendRarp]);
    let other = (other, prop_oneof![Just(0u64), Just(15), Just(1500), any::<u64>()])
        .prop_map(|(request, value)| step(request, value.to_ne_bytes().to_vec(), 0));
    prop_oneof![features, protocol, other]
}

fn log() -> impl Strategy<Value = Step> {
    (0..3u64).prop_map(|size| {
        let area = LogArea { size: size * 4096, offset: 0 };
        step(Request::SetLogBase, area.as_bytes().to_vec(), 1)
    })
}

fn anything() -> impl Strategy<Value = Step> {
    let request = prop::sample::select(Request::ALL);
    (request, vec(any::<u8>(), 0..48), 0..3usize)
        .prop_map(|(request, payload, fds)| step(request, payload, fds))
}

fn bare() -> impl Strategy<Value = Step> {
    use Request::*;
    prop::sample::select(vec![GetFeatures, SetOwner, ResetOwner, ResetDevice, GetStatus])
        .prop_map(|request| step(request, Vec::new(), 0))
}

fn any_step() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![
        6 => ring_state(),
        6 => ring_fd(),
        4 => ring_addr(),
        3 => memory(),
        3 => number(),
        2 => log(),
        1 => bare(),
        1 => anything(),
    ];
    (kinds, any::<bool>()).prop_map(|(step, ask)| Step { ask, ..step })
}

/// Model of a ring, independent of the code under test.
#[derive(Clone, Copy, Default)]
struct Known {
    size: bool,
    addresses: bool,
    kick: bool,
    enabled: bool,
    discards: bool,
    logs: bool,
}

#[derive(Default)]
struct Model {
    rings: [Known; 4],
    features: u64,
    /// `true` if the log was negotiated, and if there is one.
    may_log: bool,
    log: bool,
}

impl Model {
    /// Follows a request that succeeded.
    fn follow(&mut self, step: &Step, memory: bool) {
        let at = step.payload.first().map_or(0, |&index| usize::from(index));
        let num = step.payload.get(4).is_some_and(|&num| num != 0);
        match step.request {
            Request::SetVringNum => self.rings[at].size = true,
            Request::SetVringAddr => {
                self.rings[at].addresses = true;
                self.release(self.rings[at].logs, |model| model.rings[at].logs = num);
            }
            Request::SetLogBase => self.log = true,
            Request::SetProtocolFeatures => {
                let features = ProtocolFeatures::from_bits_retain(number_of(step));
                self.may_log = features.contains(ProtocolFeatures::LOG_SHMFD);
            }
            Request::SetVringKick => self.set_kick(at, true),
            Request::GetVringBase => self.set_kick(at, false),
            Request::SetVringEnable => self.enable(at, num, memory),
            Request::ResetDevice => (self.rings, self.features) = Default::default(),
            Request::ResetOwner => (0..4).for_each(|at| self.enable(at, false, memory)),
            Request::SetStatus if at == 0 => {
                (0..4).for_each(|at| self.set_kick(at, false));
            }
            Request::SetFeatures => {
                let features = number_of(step);
                self.release(self.features & LOG_ALL != 0, |model| model.features = features);
                if features & Features::PROTOCOL_FEATURES.bits() == 0 {
                    (0..4).for_each(|at| self.enable(at, true, memory));
                }
            }
            _ => {}
        }
    }

    fn set_kick(&mut self, at: usize, kick: bool) {
        (self.rings[at].kick, self.rings[at].discards) = (kick, false);
    }

    /// Even rings are those that the guest receives by.
    fn enable(&mut self, at: usize, enabled: bool, memory: bool) {
        let ran = self.runs(at, memory);
        let ring = &mut self.rings[at];
        if ring.enabled != enabled {
            (ring.enabled, ring.discards) = (enabled, !enabled && ran && at % 2 == 1);
        }
    }

    /// Makes a change after which nothing may be logged, if something was before.
    fn release(&mut self, logged: bool, change: impl FnOnce(&mut Self)) {
        change(self);
        if logged && (0..4).all(|at| !self.must_log(at)) {
            self.log = false;
        }
    }

    fn must_log(&self, at: usize) -> bool {
        self.rings[at].logs || (self.may_log && self.features & LOG_ALL != 0)
    }

    fn runs(&self, at: usize, memory: bool) -> bool {
        let Known { size, addresses, kick, enabled, discards, .. } = self.rings[at];
        let log = self.log || !self.must_log(at);
        memory && size && addresses && kick && (enabled || discards) && log
    }
}

fn number_of(step: &Step) -> u64 {
    u64::from_ne_bytes(step.payload[..8].try_into().unwrap())
}

fn make(step: &Step) -> Message {
    let mut message = message(step.request, &step.payload[..], step.fds);
    message.flags.set(Flags::NEED_REPLY, step.ask);
    message
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rings_run_exactly_when_they_should(steps in vec(any_step(), 1..150)) {
        let mut session = Session::new(CONFIG);
        let mut model = Model::default();
        for step in &steps {
            let memory = !session.device.regions().is_empty();
            let reply = session.handle(make(step));
            if reply.is_ok() && session.backend.take_refusal().is_none() {
                model.follow(step, memory);
            }
            let memory = !session.device.regions().is_empty();
            for at in 0..4 {
                prop_assert_eq!(session.runs(at), model.runs(at, memory), "ring {} after {:?}", at, step);
            }
        }
        session.backend.disconnect(&mut session.device);
        prop_assert_eq!(session.device.rings_running(), 0);
        prop_assert!(session.device.regions().is_empty());
        let calls = session.device.calls();
        prop_assert_eq!(calls.starts, calls.stops);
    }

    #[test]
    fn a_device_that_refuses_breaks_nothing(
        steps in vec(any_step(), 1..150),
        refusals in any::<u64>(),
    ) {
        let mut session = Session::new(CONFIG);
        session.device.refusals = refusals;
        for step in &steps {
            // A refusal is an error or a negative answer; the device checks the rest.
            let _ = session.handle(make(step));
        }
        session.backend.disconnect(&mut session.device);
        prop_assert_eq!(session.device.rings_running(), 0);
        prop_assert!(session.device.regions().is_empty());
    }
}
