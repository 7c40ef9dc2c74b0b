//! Stalled readers, and files that cannot be written.

use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Accepts lines only when allowed, and fails when told to.
struct Slow {
    turns: Receiver<io::Result<()>>,
    written: Sender<String>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turns.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        let _ = self.written.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn slow() -> (Log, Sender<io::Result<()>>, Receiver<String>) {
    let (turn, turns) = channel();
    let (written, lines) = channel();
    (Log::start(Slow { turns, written }).unwrap(), turn, lines)
}

const LINE: &[u8] = &[b'x'; 1023];
const WAIT: Duration = Duration::from_secs(20);

fn dropped(log: &Log) -> u64 {
    log.0.dropped.load(Ordering::Relaxed)
}

#[test]
fn a_reader_that_stands_still_costs_lines_and_is_told_how_many_where_they_were() {
    let (log, turn, lines) = slow();
    log.push(b"first\n");
    while !log.0.lock().entries.is_empty() {
        std::thread::yield_now(); // until the thread waits with the line taken
    }
    let fit = BYTES_MAX / LINE.len();
    (0..fit + 10).for_each(|_| log.push(LINE));
    assert_eq!(dropped(&log), 10);
    assert!(!log.flush(Duration::from_millis(1)), "the reader is stalled");
    // The reader continues: queued lines, then the notice, then later lines.
    let next = || {
        turn.send(Ok(())).unwrap();
        lines.recv_timeout(WAIT).unwrap()
    };
    assert_eq!(next(), "first\n");
    (0..fit).for_each(|_| assert_eq!(next().len(), LINE.len()));
    log.push(b"later\n");
    assert!(next().starts_with("shunt: 10 log lines dropped"));
    assert_eq!(next(), "later\n");
    assert!(log.flush(WAIT));
    assert_eq!(log.0.lock().bytes, 0);
}

#[test]
fn the_number_missing_does_not_wait_for_another_line() {
    let (log, turn, lines) = slow();
    let fit = BYTES_MAX / LINE.len();
    (0..fit + 20).for_each(|_| log.push(LINE)); // the thread may have taken one more
    let missing = dropped(&log);
    assert!((19..=20).contains(&missing), "{missing}");
    (0..=fit + 20).for_each(|_| turn.send(Ok(())).unwrap());
    assert!(log.flush(WAIT));
    let all: Vec<String> = lines.try_iter().collect();
    assert!(all.last().unwrap().contains(" log lines dropped"));
    // The thread that took one more may have told of those before it.
    let told = all.iter().filter_map(|line| line.strip_prefix("shunt: ")?.split(' ').next());
    assert_eq!(told.map(|number| number.parse::<u64>().unwrap()).sum::<u64>(), missing);
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_told_when_there_is_room_again() {
    let (log, turn, lines) = slow();
    let full = || Err(io::ErrorKind::StorageFull.into());
    // The second line is dropped with the notice of the first.
    for n in 1..=3 {
        turn.send(full()).unwrap();
        log.push(b"lost\n");
        assert!(log.flush(WAIT));
        assert_eq!(dropped(&log), n);
    }
    (0..2).for_each(|_| turn.send(Ok(())).unwrap());
    log.push(b"written\n");
    assert!(log.flush(WAIT));
    let told: Vec<String> = lines.try_iter().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("\nshunt: 3 log lines dropped"), "{told:?}");
    assert_eq!(told[1], "written\n");
}

#[test]
fn a_pipe_whose_reader_ended_is_no_error() {
    let (mut reader, writer) = io::pipe().unwrap();
    let log = Log::start(writer).unwrap();
    log.push(b"heard\n");
    assert!(log.flush(WAIT));
    let mut heard = [0; 6];
    reader.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"heard\n");
    drop(reader);
    log.push(b"lost\n");
    assert!(log.flush(WAIT));
    assert_eq!(dropped(&log), 1);
}
