//! Parser of filters.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use wire::{Mac, ethernet, ipv4, ipv6};

use super::token::{Token, tokens};
use super::{
    LEN_MAX, Net, Node, SCTP, TERMS_MAX, TYPE_RARP, Test, Types, WITH_PORTS, Which, short_net,
};

/// Most tags that an expression skips.
const TAGS_MAX: usize = 4;
/// Deepest nesting of parentheses and of `not`.
const DEPTH_MAX: usize = 32;

/// A mistake in a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct FilterError {
    /// Column, from 1.
    pub column: usize,
    /// The mistake, and the remedy.
    pub message: String,
}

/// Protocol that qualifies a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ether,
    Ip,
    Ip6,
    Arp,
    Rarp,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmp6,
}

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

/// Qualifiers of a value.
#[derive(Clone, Copy, Debug)]
struct Qualifiers {
    protocol: Option<Protocol>,
    which: Which,
    has_direction: bool,
    kind: Kind,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Column behind the expression.
    end: usize,
    /// Tags that are skipped from here on.
    tags: usize,
    terms: usize,
    depth: usize,
    /// Qualifiers of the last value.
    last: Option<Qualifiers>,
}

type Parsed<T> = Result<T, FilterError>;

pub(super) fn parse(text: &str) -> Parsed<Node> {
    if text.len() > LEN_MAX {
        let message = format!("{} bytes are too long; write at most {LEN_MAX}", text.len());
        return Err(FilterError { column: LEN_MAX + 1, message });
    }
    let (tokens, end) = (tokens(text), text.chars().count() + 1);
    let mut parser = Parser { tokens, at: 0, end, tags: 0, terms: 0, depth: 0, last: None };
    let node = parser.expression()?;
    match parser.peek() {
        None => Ok(node),
        Some(token) => Err(parser.wrong(token, "is not expected here; write and or or before it")),
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, words: &[&str]) -> Option<Token<'a>> {
        let token = self.peek().filter(|token| words.contains(&token.text))?;
        self.at += 1;
        Some(token)
    }

    /// Takes the next word, which is a value called so.
    fn value(&mut self, name: &str) -> Parsed<Token<'a>> {
        let is_value = |token: &Token<'_>| !matches!(token.text, "(" | ")" | "!" | "&&" | "||");
        match self.peek().filter(is_value) {
            Some(token) => {
                self.at += 1;
                Ok(token)
            }
            None => {
                let column = self.peek().map_or(self.end, |token| token.column);
                Err(FilterError { column, message: format!("{name} is missing") })
            }
        }
    }

    fn wrong(&self, token: Token<'_>, message: &str) -> FilterError {
        FilterError { column: token.column, message: format!("{:?} {message}", token.text) }
    }

    fn expression(&mut self) -> Parsed<Node> {
        let mut node = self.negated(false)?;
        loop {
            if self.take(&["and", "&&"]).is_some() {
                node = Node::And(Box::new(node), Box::new(self.negated(true)?));
            } else if self.take(&["or", "||"]).is_some() {
                node = Node::Or(Box::new(node), Box::new(self.negated(true)?));
            } else {
                return Ok(node);
            }
        }
    }

    /// A term, with `not` before it or without; or a value, if one may have the last qualifiers.
    fn negated(&mut self, may_be_value: bool) -> Parsed<Node> {
        self.depth += 1;
        let column = self.peek().map_or(self.end, |token| token.column);
        if self.depth > DEPTH_MAX {
            let message = format!("is nested too deep; write at most {DEPTH_MAX} levels");
            return Err(FilterError { column, message });
        }
        let node = if self.take(&["not", "!"]).is_some() {
            Node::Not(Box::new(self.negated(may_be_value)?))
        } else if self.take(&["("]).is_some() {
            let node = self.expression()?;
            if self.take(&[")"]).is_none() {
                let message = format!("the parenthesis of column {column} is not closed");
                let column = self.peek().map_or(self.end, |token| token.column);
                return Err(FilterError { column, message });
            }
            node
        } else {
            self.terms += 1;
            if self.terms > TERMS_MAX {
                let message = format!("too many terms; write at most {TERMS_MAX}");
                return Err(FilterError { column, message });
            }
            self.term(may_be_value)?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn term(&mut self, may_be_value: bool) -> Parsed<Node> {
        let Some(first) = self.peek() else {
            let message = "a term is missing, such as \"tcp port 80\"".to_owned();
            return Err(FilterError { column: self.end, message });
        };
        let last = self.last.take();
        if let Some(node) = self.keyword()? {
            return Ok(node);
        }
        let protocol = self.protocol();
        if let Some((protocol, token)) = protocol
            && let Some(node) = self.group_of(protocol, token)?
        {
            return Ok(node);
        }
        let direction = self.direction();
        let kind = self.kind();
        let protocol = protocol.map(|(protocol, _)| protocol);
        let qualifiers = match (protocol, direction, kind) {
            (Some(protocol), None, None) => {
                return self.alone(protocol).ok_or_else(|| {
                    let message = "needs host, src, dst, proto, broadcast or multicast behind it";
                    self.wrong(first, message)
                });
            }
            (None, None, None) => match last.filter(|_| may_be_value) {
                Some(last) => last,
                None => {
                    let message = "is no term of a filter; write one such as \"host 10.0.0.1\" or \
                                   \"tcp port 80\"";
                    return Err(self.wrong(first, message));
                }
            },
            (protocol, direction, kind) => Qualifiers {
                protocol,
                which: direction.unwrap_or_default(),
                has_direction: direction.is_some(),
                kind: kind.unwrap_or(Kind::Host),
            },
        };
        let test = self.valued(first, qualifiers)?;
        self.last = Some(qualifiers);
        Ok(test)
    }

    /// Terms that begin with a keyword of their own.
    fn keyword(&mut self) -> Parsed<Option<Node>> {
        if self.take(&["broadcast"]).is_some() {
            return Ok(Some(broadcast()));
        }
        if self.take(&["multicast"]).is_some() {
            return Ok(Some(Node::Test(Test::EtherMulticast)));
        }
        if let Some(token) = self.take(&["vlan"]) {
            let is_number =
                |token: &Token<'_>| token.text.starts_with(|c: char| c.is_ascii_digit());
            let vid = match self.peek().filter(is_number) {
                None => None,
                Some(token) => {
                    self.at += 1;
                    let vid = number(token.text).filter(|vid| *vid <= 4095);
                    Some(vid.ok_or_else(|| self.wrong(token, "is no VLAN; write 0 to 4095"))? as u16)
                }
            };
            if self.tags == TAGS_MAX {
                return Err(self.wrong(token, "is written too often; write it at most 4 times"));
            }
            self.tags += 1;
            return Ok(Some(Node::Test(Test::Vlan { tags: self.tags - 1, vid })));
        }
        if let Some(token) = self.take(&["less", "greater"]) {
            let value = self.value("a number of bytes")?;
            let bytes = number(value.text);
            let bytes = bytes.ok_or_else(|| self.wrong(value, "is no number of bytes"))?;
            return Ok(Some(match (token.text, bytes) {
                ("less", _) => Node::Not(Box::new(Node::Test(Test::Longer { than: bytes }))),
                (_, 0) => always(),
                _ => Node::Test(Test::Longer { than: bytes - 1 }),
            }));
        }
        Ok(None)
    }

    fn protocol(&mut self) -> Option<(Protocol, Token<'a>)> {
        let token = self.peek()?;
        let protocol = match token.text {
            "ether" => Protocol::Ether,
            "ip" => Protocol::Ip,
            "ip6" => Protocol::Ip6,
            "arp" => Protocol::Arp,
            "rarp" => Protocol::Rarp,
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            "icmp" => Protocol::Icmp,
            "icmp6" => Protocol::Icmp6,
            _ => return None,
        };
        self.at += 1;
        Some((protocol, token))
    }

    /// `broadcast` and `multicast` of a protocol.
    fn group_of(&mut self, protocol: Protocol, of: Token<'_>) -> Parsed<Option<Node>> {
        let Some(token) = self.take(&["broadcast", "multicast"]) else { return Ok(None) };
        let tags = self.tags;
        match (protocol, token.text) {
            (Protocol::Ether, "broadcast") => Ok(Some(broadcast())),
            (Protocol::Ether, _) => Ok(Some(Node::Test(Test::EtherMulticast))),
            (Protocol::Ip, "multicast") => Ok(Some(Node::Test(Test::IpMulticast { tags }))),
            (Protocol::Ip6, "multicast") => Ok(Some(Node::Test(Test::Ip6Multicast { tags }))),
            _ => Err(self.wrong(token, &format!("is not known of {}", of.text))),
        }
    }

    fn direction(&mut self) -> Option<Which> {
        let first = self.take(&["src", "dst"])?;
        let other = if first.text == "src" { "dst" } else { "src" };
        let [join, second] = [0, 1].map(|i| self.tokens.get(self.at + i).map(|it| it.text));
        let both = match (join, second) {
            (Some("or" | "||"), Some(second)) if second == other => Some(Which::Either),
            (Some("and" | "&&"), Some(second)) if second == other => Some(Which::Both),
            _ => None,
        };
        // "src or dst port 80", but not "src 10.0.0.1 or dst 10.0.0.2".
        if both.is_some() {
            self.at += 2;
        }
        let one = if first.text == "src" { Which::Source } else { Which::Destination };
        Some(both.unwrap_or(one))
    }

    fn kind(&mut self) -> Option<Kind> {
        let token = self.take(&["host", "net", "port", "portrange", "proto"])?;
        Some(match token.text {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            _ => Kind::Proto,
        })
    }

    /// A protocol as a term; `None` for Ethernet.
    fn alone(&self, protocol: Protocol) -> Option<Node> {
        let tags = self.tags;
        let kind = |value| Some(Node::Test(Test::Type { tags, value }));
        let (types, number) = match protocol {
            Protocol::Ether => return None,
            Protocol::Ip => return kind(ethernet::TYPE_IPV4),
            Protocol::Ip6 => return kind(ethernet::TYPE_IPV6),
            Protocol::Arp => return kind(ethernet::TYPE_ARP),
            Protocol::Rarp => return kind(TYPE_RARP),
            Protocol::Tcp => (BOTH, ipv4::PROTOCOL_TCP),
            Protocol::Udp => (BOTH, ipv4::PROTOCOL_UDP),
            Protocol::Sctp => (BOTH, SCTP),
            Protocol::Icmp => (types(Protocol::Ip), 1),
            Protocol::Icmp6 => (types(Protocol::Ip6), ipv6::PROTOCOL_ICMPV6),
        };
        Some(Node::Test(Test::Protocol { tags, types, number }))
    }

    /// A value with its qualifiers.
    fn valued(&mut self, first: Token<'_>, of: Qualifiers) -> Parsed<Node> {
        let (tags, which) = (self.tags, of.which);
        let refused = |parser: &Self, text: &str| Err(parser.wrong(first, text));
        let test = match (of.kind, of.protocol) {
            (Kind::Host, Some(Protocol::Ether)) => {
                let value = self.value("a MAC address")?;
                let mac = value.text.parse::<Mac>();
                let mac = mac.map_err(|_| self.wrong(value, "is no MAC address"))?;
                Test::Ether { which, mac }
            }
            (
                Kind::Host | Kind::Net,
                None | Some(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp),
            ) => {
                let value = self.value("an address")?;
                let net = match of.kind {
                    Kind::Host => self.host(value)?,
                    _ => self.net(value)?,
                };
                let types = of.protocol.map_or(ALL, types);
                let known = if net.address.is_ipv4() {
                    types.ip || types.arp || types.rarp
                } else {
                    types.ip6
                };
                if !known {
                    return Err(self.wrong(value, "is no address of this protocol"));
                }
                Test::Net { tags, types, which, net }
            }
            (Kind::Host | Kind::Net, Some(_)) => {
                return refused(self, "has no addresses; write ip, ip6, arp or ether, or none");
            }
            (Kind::Port | Kind::PortRange, protocol) => {
                let protocols: &[u8] = match protocol {
                    None => WITH_PORTS,
                    Some(Protocol::Tcp) => &[ipv4::PROTOCOL_TCP],
                    Some(Protocol::Udp) => &[ipv4::PROTOCOL_UDP],
                    Some(Protocol::Sctp) => &[SCTP],
                    Some(_) => {
                        return refused(self, "has no ports; write tcp, udp or sctp, or none");
                    }
                };
                let ports = self.ports(of.kind)?;
                Test::Port { tags, protocols, which, ports }
            }
            (Kind::Proto, _) if of.has_direction => {
                return refused(self, "is a direction, and a protocol has none");
            }
            (Kind::Proto, Some(Protocol::Ether)) => {
                let value = self.value("a type")?;
                let known = match value.text {
                    "\\ip" => Some(ethernet::TYPE_IPV4),
                    "\\ip6" => Some(ethernet::TYPE_IPV6),
                    "\\arp" => Some(ethernet::TYPE_ARP),
                    "\\rarp" => Some(TYPE_RARP),
                    text => number(text).and_then(|number| u16::try_from(number).ok()),
                };
                let kind = known.filter(|kind| *kind >= 0x600);
                let kind = kind.ok_or_else(|| {
                    self.wrong(value, "is no type; write 0x600 to 0xffff, \\ip, \\ip6 or \\arp")
                })?;
                Test::Type { tags, value: kind }
            }
            (Kind::Proto, protocol @ (None | Some(Protocol::Ip | Protocol::Ip6))) => {
                let number = self.protocol_number()?;
                let types = protocol.map_or(BOTH, types);
                Test::Protocol { tags, types, number }
            }
            (Kind::Proto, Some(_)) => {
                return refused(self, "has no protocols; write ether, ip or ip6");
            }
        };
        Ok(Node::Test(test))
    }

    fn protocol_number(&mut self) -> Parsed<u8> {
        let value = self.value("a protocol")?;
        let known = match value.text {
            "\\tcp" => Some(ipv4::PROTOCOL_TCP),
            "\\udp" => Some(ipv4::PROTOCOL_UDP),
            "\\icmp" => Some(1),
            "\\icmp6" => Some(ipv6::PROTOCOL_ICMPV6),
            "\\sctp" => Some(SCTP),
            text => number(text).and_then(|number| u8::try_from(number).ok()),
        };
        known.ok_or_else(|| self.wrong(value, "is no protocol; write 0 to 255, or \\tcp or \\udp"))
    }

    fn host(&self, value: Token<'_>) -> Parsed<Net> {
        let address = value.text.parse::<IpAddr>().map_err(|_| {
            let message = match value.text.contains('/') {
                true => "has a mask; write net before it",
                false => "is no IP address; names are not looked up",
            };
            self.wrong(value, message)
        })?;
        Ok(Net::of(address))
    }

    fn net(&mut self, value: Token<'_>) -> Parsed<Net> {
        let (text, bits) = match value.text.split_once('/') {
            Some((text, bits)) => (text, Some(bits)),
            None => (value.text, None),
        };
        let net = match text.parse::<IpAddr>() {
            Ok(address @ IpAddr::V6(_)) => Some(Net::of(address)),
            _ => short_net(text),
        };
        let mut net = net.ok_or_else(|| {
            self.wrong(value, "is no network; write one such as 10.0.0.0/8 or 2001:db8::/32")
        })?;
        let most: u32 = if net.address.is_ipv4() { 32 } else { 128 };
        let full = if most == 32 { u128::from(u32::MAX) } else { u128::MAX };
        if let Some(bits) = bits {
            let bits = number(bits).filter(|bits| *bits <= most);
            let bits = bits.ok_or_else(|| {
                self.wrong(value, &format!("has no valid prefix; write /0 to /{most}"))
            })?;
            net.mask = full.checked_shl(most - bits).unwrap_or(0) & full;
        } else if self.take(&["mask"]).is_some() {
            let mask = self.value("a mask")?;
            let parsed = mask.text.parse::<Ipv4Addr>().ok().filter(|_| most == 32);
            let parsed = parsed.ok_or_else(|| self.wrong(mask, "is no mask of IPv4"))?;
            net.mask = parsed.to_bits().into();
        }
        let address = match net.address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        };
        match address & !net.mask & full {
            0 => Ok(net),
            _ => Err(self.wrong(value, "has bits outside its mask; clear them")),
        }
    }

    fn ports(&mut self, kind: Kind) -> Parsed<RangeInclusive<u16>> {
        let value = self.value("a port")?;
        let port = |text: &str| number(text).and_then(|number| u16::try_from(number).ok());
        let ends = match (kind, value.text.split_once('-')) {
            (Kind::PortRange, Some((first, last))) => port(first).zip(port(last)),
            _ => port(value.text).map(|port| (port, port)),
        };
        let message = "is no port; write 0 to 65535, names are not looked up";
        let (a, b) = ends.ok_or_else(|| self.wrong(value, message))?;
        Ok(a.min(b)..=a.max(b))
    }
}

const ALL: Types = Types { ip: true, ip6: true, arp: true, rarp: true };
const BOTH: Types = Types { arp: false, rarp: false, ..ALL };

/// The network protocol alone.
fn types(protocol: Protocol) -> Types {
    Types {
        ip: protocol == Protocol::Ip,
        ip6: protocol == Protocol::Ip6,
        arp: protocol == Protocol::Arp,
        rarp: protocol == Protocol::Rarp,
    }
}

fn broadcast() -> Node {
    Node::Test(Test::Ether { which: Which::Destination, mac: Mac::BROADCAST })
}

/// A test that each frame meets.
fn always() -> Node {
    Node::Not(Box::new(Node::Test(Test::Longer { than: u32::MAX })))
}

/// Number: decimal, octal behind 0, or hexadecimal behind 0x.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}
