//! Ids of migrations: `m-GUEST-PID-TIME`.

use api::clock::unix_ms;

/// Unique id of a migration: guest, process and time.
pub(super) fn unique(vm: &str) -> String {
    format!("m-{}-{}-{}", plain(vm), std::process::id(), unix_ms())
}

/// Checks that `id` names a migration of this guest.
pub(super) fn is_of(id: &str, vm: &str) -> bool {
    let mut parts = id.rsplitn(3, '-');
    let mut is_number = || parts.next().is_some_and(|part| part.parse::<u128>().is_ok());
    is_number() && is_number() && parts.next() == Some(&format!("m-{}", plain(vm)))
}

/// Part of a guest's name that its migrations' ids contain.
fn plain(vm: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    vm.chars().filter(plain).take(24).collect()
}
