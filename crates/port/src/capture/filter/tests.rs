//! Tests of filters: against the verdicts of tcpdump, and the errors of wrong expressions.
//!
//! `tcpdump.txt` has the verdicts of tcpdump 4.99.3 with libpcap 1.10.3 on the frames of
//! [`frames`]: an expression a line, and a hexadecimal digit for four frames. With
//! `SHUNT_TCPDUMP=1` the test runs tcpdump and writes the file. Its optimizer is off: it leaves out
//! tests whose result it knows, so that a frame that is too short for them may match after all.

use std::fmt::Write as _;
use std::process::Command;

use proptest::prelude::*;

use super::*;

/// A generator of numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const MACS: [[u8; 6]; 4] =
    [[0xff; 6], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0x33, 0x33, 0, 0, 0, 1]];
const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 1, 0, 2], [192, 168, 1, 1], [224, 0, 0, 251]];
const V6: [[u16; 8]; 3] = [
    [0xfe80, 0, 0, 0, 0, 0, 0, 1],
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2],
    [0xff02, 0, 0, 0, 0, 0, 0, 0xfb],
];
const PORTS: [u16; 4] = [22, 53, 80, 443];

/// Upper-layer header with ports of this protocol.
fn upper(numbers: &mut Numbers) -> Vec<u8> {
    let ports = [numbers.of(&PORTS), numbers.of(&PORTS)];
    let mut bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    bytes.resize(20, 0);
    bytes
}

fn ipv4_packet(numbers: &mut Numbers) -> Vec<u8> {
    let words = numbers.of(&[5, 5, 5, 8, 15]);
    let mut packet = vec![0; usize::from(words) * 4];
    packet[0] = 0x40 | words;
    packet[6] = numbers.of(&[0, 0, 0, 0x20]);
    packet[7] = numbers.of(&[0, 0, 0, 9]);
    packet[9] = numbers.of(&[1, 6, 6, 17, 17, 47, 132]);
    packet[12..16].copy_from_slice(&numbers.of(&V4));
    packet[16..20].copy_from_slice(&numbers.of(&V4));
    [packet, upper(numbers)].concat()
}

fn ipv6_packet(numbers: &mut Numbers) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, numbers.of(&[6, 17, 44, 58, 132, 0]), 64];
    for _ in 0..2 {
        packet.extend(numbers.of(&V6).iter().flat_map(|word| word.to_be_bytes()));
    }
    if packet[6] == FRAGMENT {
        packet.extend([numbers.of(&[6, 17, 58]), 0, 0, 0, 0, 0, 0, 0]);
    }
    [packet, upper(numbers)].concat()
}

fn arp_packet(numbers: &mut Numbers) -> Vec<u8> {
    let (sender, target) = (numbers.of(&V4), numbers.of(&V4));
    let macs = [MACS[1], MACS[2]];
    let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
    [&fixed[..], &macs[0], &sender, &macs[1], &target].concat()
}

/// Frames of all kinds, some of them cut.
fn frames() -> Vec<Vec<u8>> {
    let mut numbers = Numbers(1);
    let frame = |_| {
        let mut frame = [numbers.of(&MACS), numbers.of(&MACS)].concat();
        for _ in 0..numbers.of(&[0, 0, 0, 0, 1, 1, 2]) {
            frame.extend(numbers.of(&[0x8100_u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
            frame.extend(numbers.of(&[5_u16, 0x2005, 0, 100]).to_be_bytes());
        }
        let (kind, packet) = match numbers.below(10) {
            0..=3 => (0x0800_u16, ipv4_packet(&mut numbers)),
            4..=6 => (0x86dd, ipv6_packet(&mut numbers)),
            7 => (0x0806, arp_packet(&mut numbers)),
            8 => (0x8035, arp_packet(&mut numbers)),
            _ => (numbers.of(&[0x88b5, 46]), vec![0xaa; 46]),
        };
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        if numbers.below(8) == 0 {
            frame.truncate(numbers.below(frame.len()).max(1));
        } else if numbers.below(3) == 0 {
            frame.resize(frame.len() + numbers.below(200), 0);
        }
        frame
    };
    (0..256).map(frame).collect()
}

/// Expressions that show each part of the grammar.
const EXPRESSIONS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "vlan",
    "vlan 5",
    "vlan 0",
    "vlan and vlan",
    "vlan 5 and vlan 100 and ip",
    "vlan and tcp port 80",
    "ip or vlan and ip",
    "not vlan",
    "not vlan and ip",
    "broadcast",
    "multicast",
    "ether broadcast",
    "ether multicast",
    "ip multicast",
    "ip6 multicast",
    "less 60",
    "greater 100",
    "greater 0x40",
    "less 0",
    "proto 17",
    "proto \\tcp",
    "ip proto 47",
    "ip6 proto 6",
    "ip proto \\udp",
    "ether proto 0x88b5",
    "ether proto \\arp",
    "ether proto \\ip6",
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst 10.0.0.1",
    "src or dst host 10.0.0.1",
    "src and dst host 10.0.0.1",
    "ip host 10.0.0.1",
    "arp host 10.0.0.1",
    "arp src 10.0.0.1",
    "rarp dst host 10.0.0.1",
    "host fe80::1",
    "ip6 src host fe80::1",
    "dst host 2001:db8::2",
    "net 10.0.0.0/8",
    "net 10",
    "net 10.1",
    "src net 192.168",
    "net 10.1 mask 255.255.0.0",
    "ip net 10.0.0.0 mask 255.0.255.0",
    "net 0.0.0.0/0",
    "net ::/0",
    "dst net 2001:db8::/33",
    "ip6 net fe80::/10",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:01",
    "ether dst 33:33:00:00:00:01",
    "port 80",
    "tcp port 80",
    "udp src port 53",
    "sctp dst port 22",
    "src port 443",
    "tcp portrange 50-90",
    "udp portrange 90-50",
    "dst portrange 443-443",
    "port 0x50",
    "port 0120",
    "vlan 05",
    "vlan 0144",
    "tcp port 80 or 443",
    "tcp src port 80 or 443 or dst port 22",
    "host 10.0.0.1 or 10.1.0.2",
    "host 10.0.0.1 and port 53 or 80",
    "not tcp or udp",
    "not (tcp or udp)",
    "! tcp && ! udp",
    "tcp || udp and port 53",
    "(tcp or udp) and port 53",
    "not not ip",
    "not host 10.0.0.1 and 10.1.0.2",
    "((ip)) and (((not (udp))))",
    "ip and arp",
    "tcp port 80 and not host 10.0.0.1",
    "vlan and host 10.0.0.1 or ether src 02:00:00:00:00:02 and greater 80",
];

/// A random term.
fn term(numbers: &mut Numbers, tags: &mut usize) -> String {
    const DIRECTIONS: [&str; 5] = ["", "src ", "dst ", "src or dst ", "src and dst "];
    let direction = numbers.of(&DIRECTIONS);
    match numbers.below(12) {
        0 => numbers.of(&["ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "sctp"]).to_owned(),
        1 if *tags < 2 => {
            *tags += 1;
            numbers.of(&["vlan", "vlan 5", "vlan 100"]).to_owned()
        }
        1 | 2 => format!("{direction}host {}", numbers.of(&["10.0.0.1", "192.168.1.1", "fe80::1"])),
        3 => format!("{direction}net {}", numbers.of(&["10.0.0.0/8", "192.168", "2001:db8::/32"])),
        4 => format!("ether {direction}host 02:00:00:00:00:0{}", numbers.of(&[1, 2])),
        5 => format!("{}{direction}port {}", numbers.of(&["", "tcp ", "udp "]), numbers.of(&PORTS)),
        6 => format!("{direction}portrange {}-{}", numbers.of(&PORTS), numbers.of(&PORTS)),
        7 => format!("{} {}", numbers.of(&["less", "greater"]), 50 + numbers.below(100)),
        8 => numbers.of(&["broadcast", "multicast", "ip multicast"]).to_owned(),
        9 => format!("{}proto {}", numbers.of(&["", "ip ", "ip6 "]), numbers.of(&[6, 17, 58])),
        10 => format!("arp {direction}host 10.0.0.1"),
        _ => format!("ether proto {}", numbers.of(&["0x800", "0x88b5", "\\ip6"])),
    }
}

/// A random expression.
fn expression(numbers: &mut Numbers, depth: u32, tags: &mut usize) -> String {
    let mut text = String::new();
    for n in 0..=numbers.below(3) {
        if n > 0 {
            text += numbers.of(&[" and ", " or "]);
        }
        if numbers.below(4) == 0 {
            text += "not ";
        }
        if depth > 0 && numbers.below(4) == 0 {
            write!(text, "({})", expression(numbers, depth - 1, tags)).unwrap();
        } else {
            text += &term(numbers, tags);
        }
    }
    text
}

fn expressions() -> Vec<String> {
    let mut numbers = Numbers(2);
    let random = (0..300).map(|_| expression(&mut numbers, 2, &mut 0));
    EXPRESSIONS.iter().map(|text| (*text).to_owned()).chain(random.collect::<Vec<_>>()).collect()
}

fn digits(verdicts: &[bool]) -> String {
    let digit = |four: &[bool]| {
        let bits = four.iter().rev().fold(0, |bits, verdict| bits << 1 | u32::from(*verdict));
        char::from_digit(bits, 16).unwrap()
    };
    verdicts.chunks(4).map(digit).collect()
}

/// Verdicts of tcpdump on a file of the frames, each with its number as its time.
fn tcpdump(file: &std::path::Path, expression: &str, frames: usize) -> Vec<bool> {
    let mut command = Command::new("tcpdump");
    let done =
        command.arg("-O").arg("-r").arg(file).args(["-w", "-", expression]).output().unwrap();
    let mut verdicts = vec![false; frames];
    let told = String::from_utf8_lossy(&done.stderr);
    if told.contains("expression rejects all packets") {
        return verdicts;
    }
    assert!(done.status.success(), "{expression}: {told}");
    let mut rest = &done.stdout[24..];
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        verdicts[word(0)] = true;
        rest = &rest[16 + word(8)..];
    }
    verdicts
}

/// Writes the verdicts of tcpdump.
fn record(frames: &[Vec<u8>]) -> String {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        bytes.extend([number as u32, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let line = |text: String| {
        let verdicts = tcpdump(file.path(), &text, frames.len());
        format!("{text}\t{}\n", digits(&verdicts))
    };
    expressions().into_iter().map(line).collect()
}

#[test]
fn verdicts_are_those_of_tcpdump() {
    let frames = frames();
    if std::env::var_os("SHUNT_TCPDUMP").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/capture/filter/tcpdump.txt");
        std::fs::write(path, record(&frames)).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/capture/filter/tcpdump.txt");
    let recorded = std::fs::read_to_string(path).unwrap();
    let expected = expressions();
    let mut seen = 0;
    for (line, text) in recorded.lines().zip(&expected) {
        let (recorded_text, verdicts) = line.split_once('\t').unwrap();
        assert_eq!(recorded_text, text, "run this test with SHUNT_TCPDUMP=1");
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let is_met = |frame: &Vec<u8>| {
            let first = &frame[..frame.len().min(READS as usize)];
            filter.matches(first, frame.len() as u32)
        };
        let ours: Vec<bool> = frames.iter().map(is_met).collect();
        seen += ours.iter().filter(|verdict| **verdict).count();
        assert_eq!(digits(&ours), verdicts, "{text}");
    }
    assert_eq!(recorded.lines().count(), expected.len());
    assert!(seen > expected.len() * 10, "frames match");
}

#[test]
fn a_wrong_expression_is_told_with_its_column() {
    for (text, column, part) in [
        ("", 1, "a term is missing"),
        ("tcp and", 8, "a term is missing"),
        ("tcp port", 9, "a port is missing"),
        ("tcp port http", 10, "\"http\" is no port"),
        ("tcp port 65536", 10, "write 0 to 65535"),
        ("tcp port 080", 10, "write 0 to 65535"),
        ("tcp port +80", 10, "write 0 to 65535"),
        ("host web", 6, "names are not looked up"),
        ("host 10.0.0.0/8", 6, "write net before it"),
        ("net 10.0.0.1/8", 5, "bits outside its mask"),
        ("net 10.0.0.0/33", 5, "/0 to /32"),
        ("net fe80::/129", 5, "/0 to /128"),
        ("tcp host 10.0.0.1", 1, "has no addresses"),
        ("icmp port 80", 1, "has no ports"),
        ("arp host fe80::1", 10, "no address of this protocol"),
        ("ether host 02:00", 12, "no MAC address"),
        ("ether proto 1000", 13, "0x600 to 0xffff"),
        ("ether", 1, "needs host"),
        ("vlan 4096", 6, "0 to 4095"),
        ("vlan and vlan and vlan and vlan and vlan", 37, "at most 4 times"),
        ("(tcp or udp", 12, "parenthesis of column 1 is not closed"),
        ("tcp)", 4, "not expected here"),
        ("tcp udp", 5, "write and or or before it"),
        ("10.0.0.1", 1, "is no term"),
        ("tcp and 80", 9, "is no term"),
        ("ip[0] = 1", 1, "is no term"),
        ("less many", 6, "no number of bytes"),
        ("é or tcp", 1, "is no term"),
        ("tcp or é", 8, "is no term"),
        ("src proto 6", 1, "is a direction"),
        ("tcp & udp", 5, "not expected here"),
    ] {
        let error = Filter::parse(text).expect_err(text);
        assert!(error.message.contains(part), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
    }
    let many = vec!["tcp"; TERMS_MAX];
    assert!(Filter::parse(&many.join(" or ")).is_ok());
    let error = Filter::parse(&[&many[..], &["udp"]].concat().join(" or ")).unwrap_err();
    assert!(error.message.contains("at most 64"), "{error}");
    let deep = format!("{}tcp{}", "(".repeat(40), ")".repeat(40));
    assert!(Filter::parse(&deep).unwrap_err().message.contains("too deep"));
    let long = "tcp ".repeat(LEN_MAX / 4 + 1);
    assert!(Filter::parse(&long).unwrap_err().message.contains("at most 1024"));
}

proptest! {
    #[test]
    fn no_text_and_no_frame_stops_a_filter(
        words in prop::collection::vec(prop_oneof![
            Just("not"), Just("and"), Just("or"), Just("("), Just(")"), Just("src"), Just("dst"),
            Just("port"), Just("80"), Just("host"), Just("10.0.0.1"), Just("vlan"), Just("tcp"),
            Just("net"), Just("::/0"), Just("mask"), Just("ether"), Just("proto"), Just("less"),
            Just("!"), Just("\\ip"), Just("é"), Just("-"), Just("/"), Just("0x"),
        ], 0..12),
        frame: Vec<u8>,
    ) {
        if let Ok(filter) = Filter::parse(&words.join(" ")) {
            filter.matches(&frame, frame.len() as u32);
        }
    }
}
