//! Prints the bare loop's cycles per frame.
fn main() -> anyhow::Result<()> {
    let pages = if std::env::args().any(|arg| arg == "huge") {
        guestmem::Pages::Huge2M
    } else {
        guestmem::Pages::Gathered
    };
    for frame_bytes in [64, 256, 1518] {
        let pinning = lab::measure::bare::Pinning { switch: 0, guests: 1 };
        let second = std::time::Duration::from_secs(1);
        println!(
            "{frame_bytes} {:?}",
            lab::measure::bare::run(frame_bytes, second, second * 2, pages, pinning)?
        );
    }
    Ok(())
}
