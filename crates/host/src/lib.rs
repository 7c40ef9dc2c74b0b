//! This machine: its CPUs, clock, interfaces and hardware facts, and the CPU time of processes.
//!
//! Model: reads of `/proc` and `/sys` and a few system calls, each answered at once. No state is
//! kept, apart from three values that a process fixes on first use: the CPUs it may use
//! ([`cpu::allowed`]), the rate of the time-stamp counter ([`tsc::hz`]), and the clock's base
//! without such a counter. The exceptions are [`watchdog`], which has a thread of its own that
//! [`stall`] shares, and [`sandbox`].
//!
//! Limits: Linux only. Facts that the machine does not report are `None`, never a guess.

pub mod agent;
pub mod cpu;
pub mod directory;
pub mod facts;
pub mod group;
pub mod interface;
mod interrupt;
pub mod latency;
pub mod launcher;
pub mod links;
pub mod netlink;
pub mod netns;
pub mod packet;
mod proc_stat;
pub mod process;
pub mod qmp;
pub mod regular_file;
pub mod sandbox;
pub mod socket;
pub mod stall;
mod sys;
pub mod tsc;
pub mod tun;
pub mod unshare;
pub mod watchdog;

pub use cpu::{PinError, pin_this_thread};
pub use facts::MachineFacts;
pub use latency::CpuLatency;
pub use process::{CpuTime, ProcessCpu, ProcessCpuError, ThreadCpu};
