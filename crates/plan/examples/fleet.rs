//! Prints a reproducible fleet of 10 000 guests for `shunt plan fleet`:
//! `cargo run --release -p shunt-plan --example fleet -- KINDS HOSTS > fleet.toml`.
//! KINDS is the number of chain kinds, HOSTS the number of hosts.

use report::statistics::random::Random;

const GUESTS: u32 = 10_000;
const NICS: [&str; 4] = ["xl710", "e810", "cx6", "x520"];

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>().ok());
    let (Some(Some(kinds @ 1..=4096)), Some(Some(hosts @ 4..=100_000))) =
        (numbers.next(), numbers.next())
    else {
        eprintln!("usage: fleet KINDS HOSTS, as: fleet 2500 1000");
        std::process::exit(2);
    };
    for nic in NICS {
        let count = hosts / NICS.len() as u32;
        println!(
            "[[host]]\nname = \"{nic}\"\ncount = {count}\nnic = \"{nic}\"\nprofile = \"nfv-2017\"\n\
             cores = 6\nguest_cores = 64\n"
        );
    }
    let mut numbers = Random::new(1);
    let mut random = move |below: u64| numbers.below(below) as usize;
    let mut left = GUESTS;
    for kind in 0..kinds {
        let services = [1, 2, 3, 4, 6][random(5)].min(left);
        if services == 0 {
            break;
        }
        // Divides the remaining guests among the remaining kinds.
        let guests = (left / (kinds - kind)).max(services);
        let count = guests / services;
        left -= count * services;
        let mpps = 0.05 + random(850) as f64 / 1000.0;
        let frames = ["imix", "64", "512", "1518"][random(4)];
        println!(
            "[[chain]]\nname = \"c{kind}\"\ncount = {count}\nservices = {services}\nmpps = {mpps:.3}\n\
             frames = \"{frames}\"\n"
        );
    }
}
