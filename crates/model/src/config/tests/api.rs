//! `[api]` and `state_dir`.

use super::*;

/// The errors of a file with these lines in `[api]`, from line 2.
fn told(lines: &str) -> String {
    match Config::parse("shunt.toml", &format!("[api]\n{lines}\n")) {
        Ok(config) => panic!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn what_goes_together() {
    insta::assert_snapshot!(told("tcp = \"127.0.0.1:80\""), @r#"shunt.toml:2:7: api.tcp: "127.0.0.1:80" needs token_file; write token_file, the token for clients"#);
    insta::assert_snapshot!(told("token_file = \"/t\""), @r#"shunt.toml:2:14: api.token_file: "/t" needs tcp; write tcp, the address it is for"#);
    insta::assert_snapshot!(told("public_read = true"), @"shunt.toml:2:15: api.public_read: true needs tcp; write tcp, the address it is for");
    insta::assert_snapshot!(told("tls_key = \"/k\"\ntcp = \"127.0.0.1:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:11: api.tls_key: "/k" needs tls_certificate; write tls_certificate, the key's certificate"#);
    insta::assert_snapshot!(told("tls_certificate = \"/c\""), @r#"
    shunt.toml:2:19: api.tls_certificate: "/c" needs tcp; write tcp, the address it is for
    shunt.toml:2:19: api.tls_certificate: "/c" needs tls_key; write tls_key, the certificate's key
    "#);
    insta::assert_snapshot!(told("tcp = \"0.0.0.0:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:7: api.tcp: "0.0.0.0:80" would send the token in the clear; write tls_certificate and tls_key, or listen on 127.0.0.1"#);
}

#[test]
fn values() {
    insta::assert_snapshot!(told("tcp = \"localhost:80\"\ntoken_file = \"/t\""), @r#"shunt.toml:2:7: api.tcp: "localhost:80" is not allowed; write an IP address and port, such as "127.0.0.1:8080" or "[::1]:8080""#);
    insta::assert_snapshot!(told("tcp = 80\ntoken_file = \"token\""), @r#"
    shunt.toml:2:7: api.tcp: 80 is a number; write an IP address and port, such as "127.0.0.1:8080" or "[::1]:8080"
    shunt.toml:3:14: api.token_file: "token" is not allowed; write the absolute path of a file, such as "/etc/shunt/file"
    "#);
    insta::assert_snapshot!(told("enabled = \"no\"\ntokenfile = \"/t\""), @r#"
    shunt.toml:2:11: api.enabled: "no" is a text; write true or false
    shunt.toml:3:1: api.tokenfile: unknown field; did you mean token_file?
    "#);
    let own = "run_dir = \"/run/shunt\"\n[api]\nsocket = \"lock\"";
    let own = Config::parse("shunt.toml", own).unwrap_err().to_string();
    insta::assert_snapshot!(own, @r#"shunt.toml:3:10: api.socket: "/run/shunt/lock" is a file of the daemon; choose another name"#);
    let lists = Config::parse("shunt.toml", "[[api]]").unwrap_err().to_string();
    insta::assert_snapshot!(lists, @"shunt.toml:1:3: api: is a list; write a table with its fields");
}

#[test]
fn its_socket_is_no_attachments() {
    let head = "run_dir = \"/run/shunt\"\n";
    let vf = "[[nic]]\nname = \"a\"\nkind = \"soft\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"api.sock\"\n";
    let told =
        |text: String| Config::parse("shunt.toml", &text).map_err(|errors| errors.to_string());
    insta::assert_snapshot!(told(format!("{head}{vf}")).unwrap_err(), @r#"shunt.toml:7:21: VF 0 of NIC a, attachment.socket: "/run/shunt/api.sock" is a file of the daemon; choose another name"#);
    insta::assert_snapshot!(told(format!("{head}[api]\nsocket = \"./api.sock\"\n{vf}")).unwrap_err(), @r#"shunt.toml:9:21: VF 0 of NIC a, attachment.socket: "/run/shunt/api.sock" is a file of the daemon; choose another name"#);
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
    insta::assert_snapshot!(told("state_dir = \"state\""), @r#"shunt.toml:2:13: state_dir: "state" is not allowed; write the absolute path of a directory, such as "/var/lib/shunt""#);
    insta::assert_snapshot!(told("state_dir = \"/run/shunt/\""), @r#"shunt.toml:2:13: state_dir: "/run/shunt" is also run_dir, which may not survive a reboot; choose another"#);
}
