//! The channel to the host: a virtio-serial port, or a socket.
//!
//! Only one program can have the port open; others wait for a moment. System calls on a port have
//! no timeout, so a separate thread makes them, and is abandoned if the host is silent for too
//! long.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use crate::json::Json;

/// Prefix of our port names.
const PREFIX: &str = "shunt.vpf.";
/// Directory in which the kernel lists ports and their names.
const PORTS: &str = "/sys/class/virtio-ports";
/// Longest wait for another program to close the port.
const BUSY: Duration = Duration::from_secs(10);
/// Longest wait for an answer; the host delays guests that send many requests.
const SILENT: Duration = Duration::from_secs(20);
/// Error number of an answer without a request: earlier unanswered requests are lost.
const EAGAIN: f64 = 11.0;
/// The longest answer, in bytes.
const ANSWER_MAX: u64 = 64 * 1024;

/// An open channel.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Stream,
    path: PathBuf,
}

#[derive(Debug)]
enum Stream {
    Port(File),
    Socket(UnixStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Port(file) => file.try_clone().map(Stream::Port),
            Stream::Socket(socket) => socket.try_clone().map(Stream::Socket),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Port(file) => file.read(bytes),
            Stream::Socket(socket) => socket.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Port(file) => file.write(bytes),
            Stream::Socket(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel {
    /// Opens the port of that name or path, or the only one there is.
    pub(crate) fn open(port: Option<&str>) -> Result<Channel, String> {
        let given = port.map(str::to_owned).or_else(|| std::env::var("SHUNT_GUEST_PORT").ok());
        let path = match given {
            Some(path) if path.starts_with('/') => PathBuf::from(path),
            Some(name) => find(Path::new(PORTS), |known| known == name)?,
            None => find(Path::new(PORTS), |known| known.starts_with(PREFIX))?,
        };
        let begun = Instant::now();
        loop {
            match connect(&path) {
                Ok(stream) => return Ok(Channel { stream, path }),
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < BUSY =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("cannot open {}: {error}", path.display())),
            }
        }
    }

    /// Sends a request and waits for its answer. If the host is away (its daemon restarts) or
    /// dropped the request, sends it again for a while: a repeated request takes effect once.
    pub(crate) fn ask(&mut self, request: &Json) -> Result<Json, String> {
        let path = self.path.display().to_string();
        let begun = Instant::now();
        loop {
            match self.ask_once(request) {
                Ok(answer) => return Ok(answer),
                Err(AskError::Other(why)) => return Err(format!("{path}: {why}")),
                Err(AskError::Lost) if begun.elapsed() < BUSY => {}
                Err(AskError::Lost) => {
                    return Err(format!("{path}: another program floods the host with requests"));
                }
                Err(AskError::HungUp) if self.is_port() && begun.elapsed() < BUSY => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(AskError::HungUp) => {
                    return Err(format!(
                        "{path}: the host is not connected; is its daemon running?"
                    ));
                }
            }
        }
    }

    fn is_port(&self) -> bool {
        matches!(self.stream, Stream::Port(_))
    }

    fn ask_once(&self, request: &Json) -> Result<Json, AskError> {
        let id = number();
        let mut request = request.clone();
        request.put("id", Json::Number(id));
        let stream = self.stream.try_clone().map_err(|error| AskError::Other(error.to_string()))?;
        let (send, answer) = mpsc::channel();
        // An empty line ends a line that a killed program may have left unfinished.
        let line = format!("\n{request}\n");
        std::thread::spawn(move || send.send(exchange(stream, &line, id)));
        answer.recv_timeout(SILENT).unwrap_or_else(|_| {
            let seconds = SILENT.as_secs();
            let why = format!("the host did not answer within {seconds} s; is its daemon running?");
            Err(AskError::Other(why))
        })
    }
}

/// Reasons for a missing answer.
#[derive(Debug)]
enum AskError {
    /// The host is away.
    HungUp,
    /// The host dropped requests, perhaps this one, since another program sent too many.
    Lost,
    /// Other errors, as text.
    Other(String),
}

/// A unique request number below 2^53.
fn number() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed =
        (now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    (mixed >> 11) as f64
}

fn connect(path: &Path) -> io::Result<Stream> {
    if fs::metadata(path)?.file_type().is_socket() {
        return UnixStream::connect(path).map(Stream::Socket);
    }
    OpenOptions::new().read(true).write(true).open(path).map(Stream::Port)
}

/// Writes a request, and reads until its answer comes.
fn exchange(mut stream: Stream, line: &str, id: f64) -> Result<Json, AskError> {
    let told = |error: io::Error| AskError::Other(error.to_string());
    stream.write_all(line.as_bytes()).map_err(told)?;
    let mut answers = BufReader::new(stream);
    let begun = Instant::now();
    while begun.elapsed() < SILENT {
        let mut answer = String::new();
        let read = answers.by_ref().take(ANSWER_MAX).read_line(&mut answer);
        match read.map_err(told)? {
            0 => return Err(AskError::HungUp),
            _ if !answer.ends_with('\n') => {
                return Err(AskError::Other("the host's answer is too long".into()));
            }
            _ => {}
        }
        // Left-over bytes of earlier exchanges are skipped.
        let Some(answer) = Json::read(&answer) else { continue };
        let of = answer.get("id").and_then(Json::number);
        if of == Some(id) {
            return Ok(answer);
        }
        let errno = answer.get("error").and_then(|error| error.get("errno"));
        if of == Some(0.0) && errno.and_then(Json::number) == Some(EAGAIN) {
            return Err(AskError::Lost);
        }
    }
    Err(AskError::Other("the host did not answer this request".into()))
}

/// The device of the port whose name matches.
fn find(ports: &Path, is_it: impl Fn(&str) -> bool) -> Result<PathBuf, String> {
    let entries = fs::read_dir(ports).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        Some((name.trim_end().to_owned(), Path::new("/dev").join(entry.file_name())))
    });
    let mut found: Vec<(String, PathBuf)> = named.filter(|(name, _)| is_it(name)).collect();
    found.sort();
    match found.as_slice() {
        [(_, device)] => Ok(device.clone()),
        [] => Err("no such port; the host must provide a channel (shunt vpf), \
                   and the guest needs the driver virtio_console"
            .into()),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("several ports found; choose with --port one of {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let add = |device: &str, name: &str| {
            fs::create_dir(dir.path().join(device)).unwrap();
            fs::write(dir.path().join(device).join("name"), format!("{name}\n")).unwrap();
        };
        let ours = |known: &str| known.starts_with(PREFIX);
        assert!(find(dir.path(), ours).unwrap_err().contains("no such port"));
        add("vport1p1", "org.qemu.guest_agent.0");
        add("vport1p2", "shunt.vpf.vm7");
        assert_eq!(find(dir.path(), ours).unwrap(), Path::new("/dev/vport1p2"));
        add("vport2p1", "shunt.vpf.vm8");
        let told = find(dir.path(), ours).unwrap_err();
        assert!(told.contains("shunt.vpf.vm7, shunt.vpf.vm8"), "{told}");
        assert_eq!(
            find(dir.path(), |it| it == "shunt.vpf.vm8").unwrap(),
            Path::new("/dev/vport2p1")
        );
    }

    #[test]
    fn what_the_host_passed_over_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let host = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let mut stream = host.accept().unwrap().0;
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked = lines.map(|line| line.unwrap()).filter(|line| !line.is_empty());
            for (i, request) in asked.take(2).enumerate() {
                let id = Json::read(&request).unwrap().get("id").and_then(Json::number).unwrap();
                let answer = match i {
                    0 => r#"{"error":{"errno":11},"id":0}"#.to_owned(),
                    _ => format!(r#"{{"result":"done","id":{id}}}"#),
                };
                writeln!(stream, "{answer}").unwrap();
            }
        });
        let mut channel = Channel::open(path.to_str()).unwrap();
        let answer = channel.ask(&Json::Object(Vec::new())).unwrap();
        assert_eq!(answer.get("result").and_then(Json::text), Some("done"));
        served.join().unwrap();
    }
}
