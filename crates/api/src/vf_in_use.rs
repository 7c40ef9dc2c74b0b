//! VFs in use by adapters. A VF with settings belongs to the operator, so settings on a VF take it
//! from an adapter that does not name it. Such a change is rejected: the operator mostly means a
//! setting of the adapter.

use model::state::{Actual, Problem, State};
use serde_json::Value;

use super::error::ApiError;
use super::manager::Manager;

/// Checks that a change of one part adds no settings to a VF that an adapter uses without naming
/// it. `settings` is the client's input, if the part is a VF.
///
/// # Errors
/// An adapter uses the VF; the error has the command for the same setting on the adapter.
pub(super) fn check(
    (before, to): (&State, &State),
    actual: &Actual,
    settings: &Value,
) -> Result<(), ApiError> {
    for nic in &to.nics {
        let known = before.nic(&nic.name).map_or(&[][..], |nic| &nic.vfs);
        let is_new = |index| known.iter().all(|vf| vf.index != index);
        for index in nic.vfs.iter().map(|vf| vf.index).filter(|index| is_new(*index)) {
            let holds = |name: &str| {
                let adapter = to.adapter(name).filter(|adapter| adapter.vf.is_none());
                let on = adapter.and_then(|adapter| to.nic_of(adapter));
                on.is_some_and(|on| on.name == nic.name)
            };
            let mut holders = actual.adapters.iter().filter(|one| one.vf == Some(index));
            let Some(holder) = holders.find(|one| holds(&one.name)) else { continue };
            let (nic, adapter) = (&nic.name, &holder.name);
            let error = format!(
                "is in use by adapter {adapter}, and settings on the VF would take it from {adapter}"
            );
            let allowed =
                format!("set it on the adapter: shunt adapter set {adapter}{}", flags(settings));
            let problem =
                Problem::new("", (), error, allowed).of(format!("VF {index} of NIC {nic}"));
            return Err(ApiError::Impossible(problem.into()));
        }
    }
    Ok(())
}

/// Error of a missing entry `nic/index` of a VF: names the adapter that uses the VF.
pub(super) fn explain(error: ApiError, manager: &mut Manager, keys: &[String]) -> ApiError {
    let ApiError::NotFound(absent) = &error else { return error };
    let [nic, index] = keys else { return error };
    let Some(total) = manager.state().nic(nic).map(|nic| nic.total_vfs) else { return error };
    let Ok(index) = index.parse::<u16>() else { return error };
    if !absent.object.starts_with("VF ") || index >= total {
        return error;
    }
    let actual = manager.actual();
    let on = |name: &str| {
        let adapter = manager.state().adapter(name);
        adapter
            .and_then(|adapter| manager.state().nic_of(adapter))
            .is_some_and(|on| on.name == *nic)
    };
    let mut holders = actual.adapters.iter().filter(|one| one.vf == Some(index));
    let (message, remedy) = match holders.find(|one| on(&one.name)) {
        Some(holder) => (
            format!("is in use by adapter {}, which has its settings", holder.name),
            format!("see shunt adapter show {}", holder.name),
        ),
        None => ("has no settings of its own".to_owned(), "see shunt vf set --help".to_owned()),
    };
    let missing = Problem::new("", (), message, remedy).of(&absent.object);
    ApiError::NotFound(missing.into())
}

/// Settings as flags of `shunt adapter set`, with a space before each. Null resets a setting and
/// has no flag.
fn flags(settings: &Value) -> String {
    let mut all = String::new();
    for (name, value) in settings.as_object().into_iter().flatten() {
        let flag = match name.as_str() {
            "index" | "driver" | "query_rss" => continue, // only a VF has them
            "id" => "vlan".to_owned(), // of the table `vlan`, as are qos and proto
            "adapter" => "mirror-to".to_owned(),
            "file" => "mirror-file".to_owned(),
            "direction" => "mirror-direction".to_owned(),
            name => name.replace('_', "-"),
        };
        let text = match value {
            Value::Null => continue,
            Value::Object(_) => {
                all += &flags(value);
                continue;
            }
            Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(items) if items.is_empty() => "none".to_owned(),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            Value::Number(number) => number.to_string(),
        };
        all += &format!(" --{flag} {text}");
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::flags;

    #[test]
    fn settings_are_written_as_flags() {
        let settings = json!({
            "index": 0, "vlan": {"id": 7, "qos": 3}, "spoof_check": false, "max_tx_mbps": 100,
            "trunks": ["5", "100-199"], "macs": [], "mac": null,
            "mirror": {"adapter": "probe", "direction": "tx", "file": null},
        });
        let told = flags(&settings);
        for flag in [
            " --vlan 7",
            " --qos 3",
            " --spoof-check off",
            " --max-tx-mbps 100",
            " --trunks 5,100-199",
            " --macs none",
            " --mirror-to probe",
            " --mirror-direction tx",
        ] {
            assert!(told.contains(flag), "{told}: no{flag}");
        }
        assert_eq!(told.matches("--").count(), 8, "{told}");
    }
}
