//! This machine: its CPUs, its clock, its interfaces, what it is, and what a process spends on it.
//!
//! Model: plain reads of `/proc` and `/sys` and a few system calls, each answered at once; nothing
//! here keeps state, apart from three values that a process fixes on first use: the CPUs it may use
//! ([`cpu::allowed`]), the rate of the time-stamp counter ([`tsc::hz`]), and the clock's base where
//! there is no such counter. The exception is [`brief`], which has a thread of its own;
//! [`standing`] shares it.
//!
//! Limits: Linux only. What the machine does not tell is `None`, never a guess.

pub mod agent;
pub mod brief;
pub mod cpu;
pub mod facts;
pub mod interface;
pub mod latency;
pub mod links;
pub mod netlink;
pub mod netns;
mod nudge;
pub mod packet;
mod proc_stat;
pub mod process;
pub mod qmp;
pub mod standing;
mod sys;
pub mod tsc;
pub mod tun;
pub mod unshare;

pub use cpu::{PinError, pin_this_thread};
pub use facts::MachineFacts;
pub use latency::CpuLatency;
pub use process::{CpuTime, ProcessCpu, ProcessCpuError, ThreadCpu};
