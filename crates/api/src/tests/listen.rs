//! Addresses of the API in a configuration.

use std::fs;
use std::path::Path;

use model::config::{Config, socket_path};

use super::Listen;

/// A file with these lines in `[api]`.
fn config(lines: &str) -> Config {
    Config::parse("shunt.toml", &format!("run_dir = \"/run/shunt\"\n[api]\n{lines}\n")).unwrap()
}

#[test]
fn it_is_served_where_the_commands_look_unless_the_file_says_otherwise() {
    let socket = |config: Config| Listen::of(&config).unwrap().map(|listen| listen.socket);
    let usual = Some(socket_path(Path::new("/run/shunt")));
    assert_eq!(socket(Config::parse("", "run_dir = \"/run/shunt\"").unwrap()), usual);
    assert_eq!(socket(config("")), usual);
    assert_eq!(socket(config("enabled = false")), None);
    assert_eq!(socket(config("socket = \"a.sock\"")), Some("/run/shunt/a.sock".into()));
    assert_eq!(socket(config("socket = \"/tmp/a.sock\"")), Some("/tmp/a.sock".into()));
}

#[test]
fn tcp_with_and_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&token, mode).unwrap();
    };
    let plain = config(&format!("tcp = \"[::1]:0\"\ntoken_file = \"{}\"", token.display()));
    mode(0o644);
    assert!(Listen::of(&plain).unwrap_err().to_string().contains("chmod 600"));
    mode(0o600);
    let tcp = Listen::of(&plain).unwrap().unwrap().tcp.unwrap();
    assert_eq!((tcp.address, tcp.tls.is_some()), ("[::1]:0".parse().unwrap(), false));
    let lines = format!(
        "tcp = \"192.0.2.1:443\"\ntoken_file = \"{}\"\n\
         tls_certificate = \"/etc/c.pem\"\ntls_key = \"/etc/k.pem\"",
        token.display()
    );
    let tls = Listen::of(&config(&lines)).unwrap().unwrap().tcp.unwrap().tls.unwrap();
    assert_eq!((tls.certificate, tls.key), ("/etc/c.pem".into(), "/etc/k.pem".into()));
}
