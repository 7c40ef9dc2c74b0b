//! Page types of the files that we create.

/// Pages behind a file that we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The machine's ordinary pages.
    Ordinary,
    /// 2 MiB pages that the kernel collapses from ordinary ones (`MADV_COLLAPSE`, Linux 6.1),
    /// without reservation or permission. Ordinary pages if the kernel does not.
    Collapsed,
    /// 2 MiB huge pages, reserved by the operator.
    Huge2M,
}

impl std::fmt::Display for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Pages::Ordinary | Pages::Collapsed => "ordinary pages",
            Pages::Huge2M => "2 MiB huge pages",
        })
    }
}
