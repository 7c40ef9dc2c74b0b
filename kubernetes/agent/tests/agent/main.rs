//! The agent between a kubelet, an API server and a daemon that are the tests' own.

mod claims;
mod killed;
mod test_node;
mod watch;
