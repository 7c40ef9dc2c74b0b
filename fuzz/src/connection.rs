//! Bytes on the API's socket, in pieces as they arrive.

use std::sync::{Mutex, OnceLock, PoisonError};

use api::testing::{LocalServer, Site};

use crate::Reached;

/// Responses of a connection, in order: their status, except interim ones. Panics at bytes that are
/// no responses.
fn statuses(mut bytes: &[u8], allows_head: bool) -> Vec<u16> {
    let mut statuses = Vec::new();
    while !bytes.is_empty() {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no response: {shown}"));
        let head = std::str::from_utf8(&bytes[..end]).expect("a head of ASCII");
        bytes = &bytes[end + 4..];
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = line.strip_prefix("HTTP/1.1 ").or(line.strip_prefix("HTTP/1.0 "));
        let status = status.and_then(|status| status.get(..3)).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {shown}"));
        let field = |name| {
            let lines = fields.split("\r\n").filter_map(|line| line.split_once(": "));
            lines.filter(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
        };
        assert_eq!(field("transfer-encoding"), None, "all responses have a length: {shown}");
        let len = field("content-length").map_or(0, |len| len.parse().expect("a length"));
        // The response to HEAD has the length of a body that it lacks.
        let is_head = allows_head && (bytes.is_empty() || bytes.starts_with(b"HTTP/1."));
        if len > 0 && !is_head {
            bytes = bytes.get(len..).unwrap_or_else(|| panic!("cut off: {shown}"));
        }
        if status >= 200 {
            statuses.push(status);
        }
    }
    statuses
}

/// `data` is the length of a piece, 0 for all, and the bytes of a client. Whatever they are, they
/// get the same responses as at once, up to the place where the server ends; none is a failure of
/// the server, and only accepted requests change something.
pub(crate) fn connection(data: &[u8]) -> Reached {
    static SHARED: OnceLock<Mutex<(Site, LocalServer)>> = OnceLock::new();
    let mut reached = Reached::default();
    let Some((&piece, bytes)) = data.split_first() else { return reached };
    let shared = SHARED.get_or_init(|| {
        let site = Site::new();
        let local = site.local_server();
        Mutex::new((site, local))
    });
    let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let (site, local) = &*shared;
    let allows_head = bytes.windows(4).any(|method| method == b"HEAD");
    let serve = |pieces: &[&[u8]]| {
        site.does("PUT", "/v1/state?prune=true", model::testing::document());
        let before = site.get("/v1/state");
        let statuses = statuses(&local.serve(pieces), allows_head);
        let is_changed = site.get("/v1/state") != before;
        let is_accepted = statuses.iter().any(|status| (200..300).contains(status));
        assert!(is_accepted || !is_changed, "{statuses:?}, and the document changed");
        statuses
    };
    let whole = serve(&[bytes]);
    for status in &whole {
        reached.add(if *status < 300 { "accepted" } else { "rejected" }, 1);
        assert!(*status < 500, "{whole:?}");
    }
    reached.add("several requests", u64::from(whole.len() > 1));
    if piece > 0 {
        let pieces: Vec<&[u8]> = bytes.chunks(piece.into()).collect();
        let in_pieces = serve(&pieces);
        // The generation that a condition is about is another one.
        let is_conditional = [&whole, &in_pieces].iter().any(|it| it.contains(&412));
        let n = whole.len().min(in_pieces.len());
        assert!(is_conditional || whole[..n] == in_pieces[..n], "{whole:?} and {in_pieces:?}");
        reached.add("pieces", pieces.len() as u64);
    }
    reached
}
