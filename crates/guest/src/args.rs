//! The command line, in the words of `ip link set ... vf`.

use crate::json::Json;

/// The help.
const HELP: &str = "\
Sets the VFs of this guest's virtual PF, within the host's limits.

Usage: shunt-guest [-j] [--port PORT] COMMAND

Commands:
  pf                    show the PF, and the settings that the host allows
  vf list               show all VFs, as ip link does
  vf N                  show one VF
  vf N SETTING...       set a VF; all settings take effect, or none
  vf N reset            undo all settings made here

Settings:
  mac ADDRESS           MAC address
  vlan ID [qos PCP] [proto 802.1Q|802.1ad]     VLAN; 0 for none
  rate MBPS, max_tx_rate MBPS                  maximum rate; 0 for the host's
  min_tx_rate MBPS      guaranteed rate; 0 for the host's
  spoofchk on|off       drop frames from other addresses
  trust on|off          trusted VF
  state auto|enable|disable                    link state

Options:
  -j, --json            print answers and errors as JSON, lists like ip -j -d link
      --port PORT       port name, such as shunt.vpf.vm7, or path of a device or socket;
                        default: SHUNT_GUEST_PORT, else the only port
  -V, --version
  -h, --help

Examples:
  shunt-guest vf 0 mac 52:54:00:00:00:01 vlan 100 qos 3
  shunt-guest vf 0 max_tx_rate 100 spoofchk on
  shunt-guest -j vf list

Exit codes: 0 success, 1 channel error, 2 usage error or rejected by the host.
";

/// Command to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Show the PF.
    Pf,
    /// Show all VFs, or one.
    List(Option<u16>),
    /// Set fields of a request.
    Set(u16, Vec<(&'static str, Json)>),
    /// Undo earlier settings.
    Reset(u16),
    /// Print this text.
    Print(String),
}

/// The command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) json: bool,
    pub(crate) port: Option<String>,
    pub(crate) command: Command,
}

/// Error in the command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UsageError(pub(crate) String);

fn usage_error<T>(text: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError(text.into()))
}

/// Reads a command line, without the program's name.
pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Args, UsageError> {
    let mut args = Args { json: false, port: None, command: Command::Pf };
    let mut rest = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "-j" | "--json" | "-json" => args.json = true,
            "-h" | "--help" | "help" => {
                return Ok(Args { command: Command::Print(HELP.to_owned()), ..args });
            }
            "-V" | "--version" => {
                let text = concat!("shunt-guest ", env!("CARGO_PKG_VERSION"), "\n");
                return Ok(Args { command: Command::Print(text.to_owned()), ..args });
            }
            "--port" => match words.next() {
                Some(port) => args.port = Some(port),
                None => return usage_error("--port needs a name or a path"),
            },
            flag if flag.starts_with("--port=") => {
                args.port = flag.strip_prefix("--port=").map(str::to_owned);
            }
            flag if flag.starts_with('-') => return usage_error(format!("unknown option {flag}")),
            _ => rest.push(word),
        }
    }
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    args.command = command(&rest)?;
    Ok(args)
}

fn command(words: &[&str]) -> Result<Command, UsageError> {
    match words {
        ["pf"] | ["pf", "show"] => Ok(Command::Pf),
        ["vf", "list" | "show"] | ["vf"] => Ok(Command::List(None)),
        ["vf", "list" | "show", vf] | ["vf", vf] => Ok(Command::List(Some(number(vf, "vf")?))),
        ["vf", vf, "reset"] => Ok(Command::Reset(number(vf, "vf")?)),
        ["vf", vf, settings @ ..] => {
            let vf = number(vf, "vf")?;
            Ok(Command::Set(vf, self::settings(settings)?))
        }
        [] => usage_error("the command is missing; expected pf or vf"),
        [other, ..] => usage_error(format!("unknown command {other}; expected pf or vf")),
    }
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, UsageError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().ok().filter(|_| digits) {
        Some(number) => Ok(number),
        None => usage_error(format!("{what} {text} is not a valid number")),
    }
}

fn on_off(text: &str, what: &str) -> Result<Json, UsageError> {
    match text {
        "on" => Ok(Json::Bool(true)),
        "off" => Ok(Json::Bool(false)),
        _ => usage_error(format!("{what} {text}: expected on or off")),
    }
}

/// Pairs of a word and its value; each word at most once.
fn settings(words: &[&str]) -> Result<Vec<(&'static str, Json)>, UsageError> {
    let mut settings: Vec<(&'static str, Json)> = Vec::new();
    for pair in words.chunks(2) {
        let &[word, value] = pair else { return usage_error(format!("{} needs a value", pair[0])) };
        let int = |what| number::<u32>(value, what).map(|it| Json::Number(f64::from(it)));
        let text = || Ok(Json::Text(value.to_ascii_lowercase()));
        let (name, value) = match word {
            "mac" => ("mac", text()),
            "vlan" => ("vlan", int("vlan")),
            "qos" => ("qos", int("qos")),
            "proto" => ("proto", text()),
            "rate" | "max_tx_rate" => ("max_tx_rate", int(word)),
            "min_tx_rate" => ("min_tx_rate", int("min_tx_rate")),
            "spoofchk" => ("spoofchk", on_off(value, "spoofchk")),
            "trust" => ("trust", on_off(value, "trust")),
            "state" => ("state", text()),
            other => return usage_error(format!("unknown setting {other}")),
        };
        if settings.iter().any(|(known, _)| *known == name) {
            return usage_error(format!("{name} is given twice"));
        }
        settings.push((name, value?));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Args, UsageError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn set(line: &str) -> String {
        match of(line) {
            Ok(Args { command: Command::Set(vf, settings), .. }) => {
                format!(
                    "{vf} {}",
                    Json::Object(settings.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
                )
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn settings_are_those_of_ip_link() {
        let line = "vf 3 mac 52:54:00:AA:00:01 vlan 100 qos 3 proto 802.1Q rate 50 min_tx_rate 5 \
                    spoofchk off trust on state auto";
        let expected = "3 {\"mac\":\"52:54:00:aa:00:01\",\"vlan\":100,\"qos\":3,\"proto\":\"802.1q\",\
                        \"max_tx_rate\":50,\"min_tx_rate\":5,\"spoofchk\":false,\"trust\":true,\"state\":\"auto\"}";
        assert_eq!(set(line), expected);
    }

    #[test]
    fn commands_and_options() {
        assert_eq!(of("vf list").unwrap().command, Command::List(None));
        assert_eq!(of("vf 2").unwrap().command, Command::List(Some(2)));
        assert_eq!(of("vf 2 reset").unwrap().command, Command::Reset(2));
        assert_eq!(of("pf").unwrap().command, Command::Pf);
        let args = of("--port shunt.vpf.vm -j vf list").unwrap();
        assert_eq!((args.json, args.port.as_deref()), (true, Some("shunt.vpf.vm")));
        assert_eq!(of("--port=/x vf").unwrap().port.as_deref(), Some("/x"));
        assert!(matches!(of("--help").unwrap().command, Command::Print(text) if text == HELP));
    }

    #[test]
    fn mistakes_are_told() {
        for (line, words) in [
            ("", "missing"),
            ("link", "unknown command link"),
            ("-x", "unknown option -x"),
            ("--port", "--port needs"),
            ("vf x", "vf x is not a valid number"),
            ("vf 70000 trust on", "vf 70000"),
            ("vf +1 trust on", "vf +1"),
            ("vf 0 trust", "trust needs a value"),
            ("vf 0 trust yes", "trust yes: expected on or off"),
            ("vf 0 speed 1", "unknown setting speed"),
            ("vf 0 rate 1 max_tx_rate 2", "max_tx_rate is given twice"),
            ("vf 0 vlan -1", "unknown option -1"),
        ] {
            let UsageError(text) = of(line).unwrap_err();
            assert!(text.contains(words), "{line}: {text}");
        }
    }
}
