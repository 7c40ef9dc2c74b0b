//! Environment of a command: `CNI_COMMAND` and the container it is for.

use std::path::PathBuf;

use crate::error::{CniError, Code};

/// Command of a container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connects a container.
    Add,
    /// Disconnects it.
    Del,
    /// Checks that it is connected as it was.
    Check,
    /// Deletes what no container has.
    Gc,
    /// Tells whether containers can be added.
    Status,
    /// Prints the versions.
    Version,
}

/// Variables of the environment.
#[derive(Clone, Debug)]
pub struct Environment {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// `CNI_PATH`: directories of plugins.
    pub plugins: Vec<PathBuf>,
    /// `K8S_POD_*` of `CNI_ARGS`, as labels of an owner.
    pub pod: Vec<(&'static str, String)>,
    /// All variables of the command as they are, for delegated plugins.
    pub variables: Vec<(&'static str, String)>,
    container: Option<String>,
    interface: Option<String>,
    netns: Option<String>,
}

/// A container's interface, which all commands but GC, STATUS and VERSION are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// `CNI_CONTAINERID`.
    pub container: &'a str,
    /// `CNI_IFNAME`.
    pub interface: &'a str,
}

/// Variables of a command.
const VARIABLES: [&str; 5] = ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_PATH", "CNI_ARGS"];

/// Variables of `CNI_ARGS` that become labels, and the labels.
const POD: [(&str, &str); 3] =
    [("K8S_POD_NAMESPACE", "namespace"), ("K8S_POD_NAME", "pod"), ("K8S_POD_UID", "uid")];

impl Environment {
    /// Reads the variables; `get` gives one.
    ///
    /// # Errors
    /// `CNI_COMMAND` is missing or unknown.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Environment, CniError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let command = match get("CNI_COMMAND").as_deref() {
            Some("ADD") => Command::Add,
            Some("DEL") => Command::Del,
            Some("CHECK") => Command::Check,
            Some("GC") => Command::Gc,
            Some("STATUS") => Command::Status,
            Some("VERSION") => Command::Version,
            other => {
                let message = format!("CNI_COMMAND is {}", other.unwrap_or("missing"));
                let remedy =
                    "a container runtime sets it to ADD, DEL, CHECK, GC, STATUS or VERSION";
                return Err(CniError::new(Code::Environment, message, remedy));
            }
        };
        let plugins = get("CNI_PATH").map(|path| std::env::split_paths(&path).collect());
        let arguments = get("CNI_ARGS").unwrap_or_default();
        let given = arguments.split(';').filter_map(|pair| pair.split_once('='));
        let label = |(name, value): (&str, &str)| {
            let (_, label) = POD.iter().find(|(known, _)| *known == name)?;
            Some((*label, value.to_owned()))
        };
        Ok(Environment {
            command,
            plugins: plugins.unwrap_or_default(),
            pod: given.filter_map(label).collect(),
            variables: VARIABLES.iter().filter_map(|name| Some((*name, get(name)?))).collect(),
            container: get("CNI_CONTAINERID"),
            interface: get("CNI_IFNAME"),
            netns: get("CNI_NETNS"),
        })
    }

    /// The container's interface.
    ///
    /// # Errors
    /// A variable is missing or invalid.
    pub fn place(&self) -> Result<Place<'_>, CniError> {
        let container = self.required("CNI_CONTAINERID", self.container.as_deref())?;
        let interface = self.required("CNI_IFNAME", self.interface.as_deref())?;
        let may_be = |it: char| !it.is_whitespace() && !matches!(it, '/' | ':');
        if interface.len() > 15
            || [".", ".."].contains(&interface)
            || !interface.chars().all(may_be)
        {
            let remedy = "give a name of at most 15 bytes without spaces, / and :";
            let message = format!("CNI_IFNAME is {interface:?}, no name of an interface");
            return Err(CniError::new(Code::Environment, message, remedy));
        }
        Ok(Place { container, interface })
    }

    /// Path of the container's network namespace.
    ///
    /// # Errors
    /// The variable is missing.
    pub fn netns(&self) -> Result<&str, CniError> {
        self.required("CNI_NETNS", self.netns.as_deref())
    }

    fn required<'a>(&self, name: &str, value: Option<&'a str>) -> Result<&'a str, CniError> {
        value.ok_or_else(|| {
            let message = format!("{name} is missing");
            CniError::new(
                Code::Environment,
                message,
                "a container runtime sets it for this command",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, CniError> {
        Environment::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_are_read_and_missing_ones_are_named() {
        let args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_UID=4d;X=y";
        let all = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "net1"),
            ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
            ("CNI_ARGS", args),
        ];
        let read_all = read(&all).unwrap();
        assert_eq!(read_all.command, Command::Add);
        assert_eq!(read_all.place().unwrap(), Place { container: "c1", interface: "net1" });
        assert_eq!(read_all.plugins.len(), 2);
        assert_eq!(read_all.pod, [("pod", "web-0".to_owned()), ("uid", "4d".to_owned())]);
        let error = read_all.netns().unwrap_err();
        assert_eq!((error.code(), error.message()), (4, "CNI_NETNS is missing"));
        let error = read(&[("CNI_COMMAND", "add")]).unwrap_err();
        assert_eq!((error.code(), error.message()), (4, "CNI_COMMAND is add"));
        for name in ["a b", "a/b", "..", "0123456789abcdef"] {
            let all = [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", name)];
            assert_eq!(read(&all).unwrap().place().unwrap_err().code(), 4, "{name}");
        }
    }
}
