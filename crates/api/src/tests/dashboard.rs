//! Files of the dashboard, and requests that need no token.

use std::net::TcpStream;
use std::time::Duration;

use super::super::{Tcp, Token};
use super::{Site, eventually_in, exchange, request};
use crate::dashboard::FILES;

const TOKEN: &str = "correct-horse+battery";

fn site(public_read: bool) -> Site {
    let token = Token::new(TOKEN).unwrap();
    let tcp = Tcp { address: "127.0.0.1:0".parse().unwrap(), token, tls: None, public_read };
    Site::with_tcp(Some(tcp))
}

fn ask(site: &Site, line: &str, headers: &str) -> String {
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    exchange(TcpStream::connect(address).unwrap(), &request(line, headers, ""))
}

#[test]
fn the_page_needs_no_token_and_its_figures_do() {
    let site = site(false);
    for file in &FILES {
        for answer in [
            ask(&site, &format!("GET {}", file.path), ""),
            site.raw(&request(&format!("GET {}", file.path), "", "")),
        ] {
            let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
            assert!(head.starts_with("http/1.1 200"), "{}: {head}", file.path);
            for header in [
                "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
                "x-content-type-options: nosniff",
                "cross-origin-resource-policy: same-origin",
                "cache-control: no-cache",
                "referrer-policy: no-referrer",
            ] {
                assert!(head.contains(header), "{}: {header} in {head}", file.path);
            }
        }
    }
    for line in
        ["GET /v1/live", "GET /v1/plan", "POST /lab.html", "POST /", "GET /web/", "GET /web/../etc"]
    {
        assert!(ask(&site, line, "").starts_with("HTTP/1.1 401"), "{line}");
    }
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let stays = b"GET / HTTP/1.1\r\nHost: shunt\r\n\r\n";
    let answer = exchange(TcpStream::connect(address).unwrap(), stays).to_lowercase();
    assert!(answer.contains("connection: close\r\n"), "without the token: {answer}");
    let head = ask(&site, "HEAD /", "");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

/// Scripts and styles within the page would need a weaker policy.
#[test]
fn the_page_has_no_script_or_style_in_it_and_no_address_of_others() {
    let site = site(false);
    for path in ["/", "/plan.html", "/lab.html"] {
        let page = site.raw(&request(&format!("GET {path}"), "", ""));
        assert!(!page.contains("<style") && !page.contains(" style="), "{page}");
        for script in page.split("<script").skip(1) {
            let tag = script.split('>').next().unwrap();
            assert!(tag.contains(" src=\"/web/") && script.contains("></script>"), "{tag}");
        }
    }
    for file in FILES.iter().filter(|file| !file.path.contains("uplot")) {
        let text = site.raw(&request(&format!("GET {}", file.path), "", ""));
        // The name of a namespace is no address.
        let text = text.replace("http://www.w3.org/", "");
        assert!(!text.contains("http://") && !text.contains("https://"), "{}", file.path);
    }
}

#[test]
fn with_public_read_only_changes_need_the_token() {
    let site = site(true);
    for line in [
        "GET /v1/live?since=0",
        "GET /v1/plan?length=2",
        "GET /v1/state",
        "GET /metrics",
        "HEAD /v1/state",
    ] {
        let answer = ask(&site, line, "").to_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{line}: {answer}");
        for header in [
            "\r\nx-content-type-options: nosniff\r\n",
            "\r\ncross-origin-resource-policy: same-origin\r\n",
            "\r\ncache-control: no-store\r\n",
        ] {
            assert_eq!(answer.matches(header).count(), 1, "{line}: {answer}");
        }
    }
    for line in ["PUT /v1/state", "POST /v1/apply", "DELETE /v1/nics/n", "POST /v1/upgrade"] {
        assert!(ask(&site, line, "").starts_with("HTTP/1.1 401"), "{line}");
    }
}

#[test]
fn pages_of_other_sites_get_nothing() {
    let site = site(true);
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    for (line, headers) in [
        ("GET /", "Origin: http://evil.example\r\n"),
        ("GET /v1/state", "Origin: null\r\n"),
        ("PUT /v1/state", "Origin: http://evil.example\r\n"),
    ] {
        let headers = format!("{good}{headers}");
        assert!(ask(&site, line, &headers).starts_with("HTTP/1.1 403"), "{line} {headers}");
        assert!(site.raw(&request(line, &headers, "")).starts_with("HTTP/1.1 403"), "{line}");
    }
    // DNS rebinding: a name of theirs, with the address of ours.
    for path in ["/", "/v1/state"] {
        let rebound =
            format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n{good}Connection: close\r\n\r\n");
        let address = site.server.as_ref().unwrap().tcp_address().unwrap();
        let answer = exchange(TcpStream::connect(address).unwrap(), rebound.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(site.raw(rebound.as_bytes()).starts_with("HTTP/1.1 403"), "{path}");
    }
}

#[test]
fn the_address_has_the_token_behind_the_fragment_mark() {
    let site = site(false);
    let server = site.server.as_ref().unwrap();
    let address = server.tcp_address().unwrap();
    assert_eq!(server.dashboard_url(false), Some(format!("http://{address}/")));
    let with_token = format!("http://{address}/#token=correct-horse%2Bbattery");
    assert_eq!(server.dashboard_url(true), Some(with_token));
    assert_eq!(Site::new().server.as_ref().unwrap().dashboard_url(true), None);
}

#[test]
fn a_live_reading_has_what_the_single_requests_have() {
    let site = Site::new();
    site.apply(model::testing::document());
    let live = site.get("/v1/live?since=1");
    assert_eq!(live["stats"], site.get("/v1/stats"));
    assert_eq!(live["in_force"], site.get("/v1/actual"));
    assert_eq!(live["events"], site.get("/v1/events?since=1"));
    let later = site.get("/v1/live")["clock_us"].as_u64();
    assert!(later > live["clock_us"].as_u64() && later.is_some(), "{later:?}");
}

#[test]
fn the_history_has_a_reading_each_second() {
    let site = Site::new();
    let readings = || site.get("/v1/history").as_array().unwrap().len();
    eventually_in(Duration::from_secs(10), "two readings", || readings() >= 2);
    let [first, second] = [0, 1].map(|i| site.get("/v1/history")[i]["clock_us"].as_u64().unwrap());
    assert!((500_000..5_000_000).contains(&(second - first)), "{first} {second}");
}

#[test]
fn reasons_are_those_of_the_counters() {
    let reasons = Site::new().get("/v1/reasons");
    let named = |name: &str| reasons.as_array().unwrap().iter().find(|one| one["name"] == name);
    assert_eq!(named("no_buffer").unwrap()["counters"], serde_json::json!(["rx_no_buffer"]));
    assert_eq!(named("NoFreeVf").unwrap()["kind"], "path");
}
