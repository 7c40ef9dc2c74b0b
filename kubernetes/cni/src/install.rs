//! Installation on a node: a container has the node's directory of plugins, and neither a shell nor
//! `cp`.

use std::fs;
use std::path::Path;

/// First argument of the installation.
pub const INSTALL: &str = "install";
/// Name in the directory of plugins.
const NAME: &str = "shunt-cni";

/// Copies a program to the directory that `arguments` name, in one step: a runtime may run the one
/// that is replaced.
///
/// # Errors
/// The text of the error: there is not one directory, or it cannot be written.
pub fn install(arguments: &[String], program: &Path) -> Result<(), String> {
    let [directory] = arguments else {
        return Err(format!("{INSTALL} needs one directory, such as /opt/cni/bin"));
    };
    let (place, new) =
        (Path::new(directory).join(NAME), Path::new(directory).join(".shunt-cni.new"));
    let copied = fs::copy(program, &new).and_then(|_| fs::rename(&new, &place));
    copied.map_err(|error| {
        let _ = fs::remove_file(&new); // may not have been made
        format!(
            "{} cannot be written: {error}; give the node's directory of plugins",
            place.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_replaced_in_one_step() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("new-version");
        fs::write(&program, "2").unwrap();
        let bin = directory.path().join("bin");
        let arguments = [bin.to_str().unwrap().to_owned()];
        let error = install(&arguments, &program).unwrap_err();
        assert!(error.contains("bin/shunt-cni cannot be written"), "{error}");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join(NAME), "1").unwrap();
        let running = fs::File::open(bin.join(NAME)).unwrap();
        install(&arguments, &program).unwrap();
        assert_eq!(fs::read_to_string(bin.join(NAME)).unwrap(), "2");
        assert_eq!(std::io::read_to_string(running).unwrap(), "1", "a running one keeps its file");
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1);
        assert!(install(&[], &program).unwrap_err().contains("/opt/cni/bin"));
    }
}
