//! Parts that the CNI plugin and the node agent share: requests to the daemon, settings of an
//! adapter as a network or a claim has them, and names that are made of what they are for.

mod daemon;
mod key;
mod settings;

pub use daemon::Daemon;
pub use key::Key;
pub use settings::{Kind, Settings, has_prefix};
