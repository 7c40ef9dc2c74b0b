//! `[api]` and `state_dir`.

use super::*;

/// The errors of a file with these lines in `[api]`, from line 2.
fn told(lines: &str) -> String {
    match Config::parse("shunt.toml", &format!("[api]\n{lines}\n")) {
        Ok(config) => panic!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

/// The API of a file with these lines in `[api]`.
fn api(lines: &str) -> Option<Api> {
    parse(&format!("run_dir = \"/run/shunt\"\n[api]\n{lines}\n")).api
}

#[test]
fn it_is_served_where_the_commands_look_unless_the_file_says_otherwise() {
    let usual = Api { socket: crate::api::socket_path(Path::new("/run/shunt")), tcp: None };
    assert_eq!(parse("run_dir = \"/run/shunt\"").api, Some(usual.clone()));
    assert_eq!(api(""), Some(usual));
    assert_eq!(api("enabled = false"), None);
    assert_eq!(api("socket = \"a.sock\"").unwrap().socket, Path::new("/run/shunt/a.sock"));
    assert_eq!(api("socket = \"/tmp/a.sock\"").unwrap().socket, Path::new("/tmp/a.sock"));
}

#[test]
fn tcp_with_and_without_tls() {
    let plain = api("tcp = \"[::1]:0\"\ntoken_file = \"/etc/token\"").unwrap().tcp.unwrap();
    let address = "[::1]:0".parse().unwrap();
    assert_eq!(plain, ApiTcp { address, token_file: "/etc/token".into(), tls: None });
    let lines = "tcp = \"192.0.2.1:443\"\ntoken_file = \"/etc/token\"\n\
        tls_certificate = \"/etc/c.pem\"\ntls_key = \"/etc/k.pem\"";
    let tls = ApiTls { certificate: "/etc/c.pem".into(), key: "/etc/k.pem".into() };
    assert_eq!(api(lines).unwrap().tcp.unwrap().tls, Some(tls));
}

#[test]
fn what_the_server_gets() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let lines = format!("tcp = \"127.0.0.1:0\"\ntoken_file = \"{}\"", token.display());
    let api = api(&lines).unwrap();
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&token, mode).unwrap();
    };
    mode(0o644);
    assert!(api.listen().unwrap_err().to_string().contains("chmod 600"));
    mode(0o600);
    let listen = api.listen().unwrap();
    assert_eq!(listen.socket, Path::new("/run/shunt/api.sock"));
    assert_eq!(listen.tcp.unwrap().address, "127.0.0.1:0".parse().unwrap());
}

#[test]
fn what_goes_together() {
    insta::assert_snapshot!(told("tcp = \"127.0.0.1:80\""), @r#"shunt.toml:2:7: api.tcp: "127.0.0.1:80" needs `token_file`, the secret that clients must show"#);
    insta::assert_snapshot!(told("token_file = \"/t\""), @r#"shunt.toml:2:14: api.token_file: "/t" needs `tcp`, the address it is for"#);
    insta::assert_snapshot!(told("tls_key = \"/k\"\ntcp = \"127.0.0.1:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:11: api.tls_key: "/k" needs `tls_certificate`, the key's certificate"#);
    insta::assert_snapshot!(told("tls_certificate = \"/c\""), @r#"shunt.toml:2:19: api.tls_certificate: "/c" needs `tcp`, the address it is for"#);
    insta::assert_snapshot!(told("tcp = \"0.0.0.0:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:7: api.tcp: "0.0.0.0:80" would send the token in the clear; give `tls_certificate` and `tls_key`, or listen on 127.0.0.1"#);
}

#[test]
fn values() {
    insta::assert_snapshot!(told("tcp = \"localhost:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:7: api.tcp: "localhost:80" is not an IP address with a port; write an IP address and port in quotes, such as "127.0.0.1:8080" or "[::1]:8080""#);
    insta::assert_snapshot!(told("tcp = 80\ntoken_file = \"token\""), @r#"
    shunt.toml:2:7: api.tcp: 80 is a whole number; write an IP address and port in quotes, such as "127.0.0.1:8080" or "[::1]:8080"
    shunt.toml:3:14: api.token_file: "token" is not an absolute path; write an absolute path in quotes, such as "/etc/shunt/token"
    "#);
    insta::assert_snapshot!(told("enabled = \"no\"\ntokenfile = \"/t\""), @r#"
    shunt.toml:2:11: api.enabled: "no" is a text; write true or false
    shunt.toml:3:1: api.tokenfile: unknown field in [api]; did you mean token_file? Allowed are enabled, socket, tcp, token_file, tls_certificate, tls_key
    "#);
    insta::assert_snapshot!(told("socket = \"lock\""), @r#"shunt.toml:2:10: api.socket: "lock" is a file of the daemon's own, so choose another name; write a path in quotes, such as "api.sock""#);
    let lists = Config::parse("shunt.toml", "[[api]]").unwrap_err().to_string();
    insta::assert_snapshot!(lists, @"shunt.toml:1:1: api: [[api]] is a list; write one table with the header [api]");
}

#[test]
fn its_socket_is_no_attachments() {
    let head = "run_dir = \"/run/shunt\"\n";
    let vf = "[[nic]]\nname = \"a\"\nkind = \"soft\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nsocket = \"api.sock\"\n";
    let told =
        |text: String| Config::parse("shunt.toml", &text).map_err(|errors| errors.to_string());
    insta::assert_snapshot!(told(format!("{head}{vf}")).unwrap_err(), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "api.sock" is a file of the daemon's own, so choose another name; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(told(format!("{head}[api]\nsocket = \"./api.sock\"\n{vf}")).unwrap_err(), @r#"shunt.toml:9:10: nic[0].vf[0].socket: "api.sock" is taken by api.socket (line 3) already; give each attachment a socket of its own"#);
    for free in ["[api]\nenabled = false\n", "[api]\nsocket = \"b.sock\"\n"] {
        assert!(told(format!("{head}{free}{vf}")).is_ok(), "{free}");
    }
}

#[test]
fn the_state_directory() {
    let told = |line: &str| {
        let text = format!("run_dir = \"/run/shunt\"\n{line}\n");
        Config::parse("shunt.toml", &text).unwrap_err().to_string()
    };
    assert_eq!(parse("state_dir = \"/s\"").state_dir.as_deref(), Some(Path::new("/s")));
    assert_eq!(parse("").state_dir, None);
    insta::assert_snapshot!(told("state_dir = \"state\""), @r#"shunt.toml:2:13: state_dir: "state" is not an absolute path; write an absolute path in quotes, such as "/var/lib/shunt""#);
    insta::assert_snapshot!(told("state_dir = \"/run/shunt/\""), @r#"shunt.toml:2:13: state_dir: "/run/shunt/" is run_dir too, which may not outlive a restart of the machine; choose another"#);
}
