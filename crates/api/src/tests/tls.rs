//! TLS over TCP, with a certificate that is for these tests only (`tls/`, valid for a hundred
//! years).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::super::{Client, ClientError, Listen, Server, Tcp, Tls, Token};
use super::{Site, exchange, request};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/tls").join(name)
}

fn tcp(certificate: &str, key: &str) -> Tcp {
    let tls = Tls { certificate: file(certificate), key: file(key) };
    let token = Token::new("correct-horse-battery").unwrap();
    Tcp { address: "127.0.0.1:0".parse().unwrap(), token, tls: Some(tls), public_read: false }
}

#[test]
fn the_token_goes_through_tls_and_nothing_is_answered_without() {
    let site = Site::with_tcp(Some(tcp("certificate.pem", "key.pem")));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("certificate.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let config = Arc::new(config);
    let ask = |headers: &str| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(config.clone(), name).unwrap();
        let stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
        exchange(stream, &request("GET /v1/state", headers, ""))
    };
    let answer = ask("Authorization: Bearer correct-horse-battery\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"version\":1"), "{answer}");
    assert!(ask("").starts_with("HTTP/1.1 401"));

    // A client without TLS gets no HTTP, and blocks no other.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    assert!(ask("").starts_with("HTTP/1.1 401"));
}

#[test]
fn our_own_client_reaches_it_and_trusts_nobody_else() {
    let site = Site::with_tcp(Some(tcp("certificate.pem", "key.pem")));
    let port = site.server.as_ref().unwrap().tcp_address().unwrap().port();
    let token = || Token::new("correct-horse-battery").unwrap();
    let url = format!("https://localhost:{port}/");
    let ca = file("certificate.pem");
    let get = |client: &Client| client.send(hyper::Method::GET, "/v1/state", None, None);
    let client = Client::at(&url, token(), Some(&ca)).unwrap();
    assert_eq!(client.place(), format!("https://localhost:{port}"));
    assert_eq!(get(&client).unwrap().body["version"], 1);
    let stranger = Client::at(&url, Token::new("wrong-horse-battery").unwrap(), Some(&ca)).unwrap();
    assert!(matches!(get(&stranger), Err(ClientError::Refused(no)) if no.status == 401));
    // The certificate is of another name.
    let other = Client::at(&format!("https://127.0.0.2:{port}"), token(), Some(&ca)).unwrap();
    assert!(matches!(get(&other), Err(ClientError::NotReached(_))));
    for (url, ca, says) in [
        ("https://localhost:1", None, "needs a CA certificate"),
        ("https://localhost", Some("certificate.pem"), "has no port"),
        ("https://localhost:x", Some("certificate.pem"), "has an invalid port"),
        ("http://10.0.0.1:1", None, "in the clear"),
        ("ftp://x", None, "not an API address"),
        ("https://localhost:1", Some("key.pem"), "no certificate"),
        ("https://localhost:1", Some("missing.pem"), "cannot read"),
    ] {
        let ca = ca.map(file);
        let told = format!("{:#}", Client::at(url, token(), ca.as_deref()).unwrap_err());
        assert!(told.contains(says), "{url}: {told}");
    }
}

#[test]
fn a_certificate_that_is_no_good_is_told_before_anything_is_served() {
    for (certificate, key, says) in [
        ("missing.pem", "key.pem", "cannot read the certificate"),
        ("key.pem", "key.pem", "do not match"),
        ("certificate.pem", "missing.pem", "cannot read the key"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let site = Site { dir, plane: Default::default(), server: None };
        let listen = Listen { socket: site.socket(), tcp: Some(tcp(certificate, key)) };
        let told = Server::start(site.manager().unwrap(), &listen).unwrap_err();
        let told = format!("{told:#}");
        assert!(told.contains(says), "{told}");
        assert!(!site.socket().exists(), "nothing is left behind");
    }
}
