//! Columns of the table of ports: title, width, cell and order of each.

use std::cmp::Ordering;

use clap::ValueEnum;
use report::three;

use super::app::Port;

/// A column of ports, and a word of `--sort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Column {
    /// NIC and adapter, VF or uplink.
    Name,
    /// Path in force.
    Path,
    /// Reason for another path than the requested one.
    Why,
    /// Frames a second that the guest sends.
    Tx,
    /// Their bits a second.
    TxBits,
    /// Frames a second that the guest receives.
    Rx,
    /// Their bits a second.
    RxBits,
    /// Dropped frames a second.
    Drops,
    /// Share of one lane's time for the port's transmitted frames.
    Lane,
    /// Share of bursts that left frames waiting in a transmit ring.
    Backlog,
    /// Share of frames for the guest that found no receive buffer.
    NoBuffer,
    /// Attached rings.
    Rings,
}

impl Column {
    pub(super) fn title(self) -> &'static str {
        match self {
            Column::Name => "port",
            Column::Path => "path",
            Column::Why => "why",
            Column::Tx => "tx/s",
            Column::TxBits => "tx bps",
            Column::Rx => "rx/s",
            Column::RxBits => "rx bps",
            Column::Drops => "drop/s",
            Column::Lane => "lane%",
            Column::Backlog => "backlog%",
            Column::NoBuffer => "no buf%",
            Column::Rings => "rings",
        }
    }

    /// Least width, with room for the mark of the sorted column.
    pub(super) fn width(self) -> usize {
        match self {
            Column::Name => 13,
            Column::Path => 9,
            Column::Why => 11,
            Column::Tx | Column::Rx | Column::Lane | Column::Rings => 6,
            Column::TxBits | Column::RxBits | Column::Drops => 7,
            Column::Backlog | Column::NoBuffer => 9,
        }
    }

    /// Returns `true` for words, which are aligned left and sorted from A to Z.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Column::Name | Column::Path | Column::Why)
    }

    /// Columns that fit a terminal of this width. Narrow ones lack the figures that change least.
    pub(super) fn that_fit(width: usize) -> Vec<Column> {
        let mut columns = Column::value_variants().to_vec();
        let least = [Column::NoBuffer, Column::Backlog, Column::Rings, Column::Lane, Column::Why];
        for left_out in least.into_iter().chain([Column::Tx, Column::Rx]) {
            let all: usize = columns.iter().map(|column| column.width() + 1).sum();
            if all <= width + 1 {
                break;
            }
            columns.retain(|column| *column != left_out);
        }
        columns
    }

    /// Number that the column shows; 0 for words.
    fn number(self, port: &Port<'_>) -> f64 {
        match self {
            Column::Name | Column::Path | Column::Why => 0.0,
            Column::Tx => port.rates.tx_frames_per_s,
            Column::TxBits => 8.0 * port.rates.tx_bytes_per_s,
            Column::Rx => port.rates.rx_frames_per_s,
            Column::RxBits => 8.0 * port.rates.rx_bytes_per_s,
            Column::Drops => port.rates.all_drops_per_s(),
            Column::Lane => 100.0 * port.rates.lane_share,
            Column::Backlog => 100.0 * port.rates.backlog,
            Column::NoBuffer => 100.0 * port.rates.no_buffer,
            Column::Rings => port.rings as f64,
        }
    }

    pub(super) fn cell(self, port: &Port<'_>) -> String {
        match self {
            Column::Name => port.rates.name.clone(),
            Column::Path => port.path.to_owned(),
            Column::Why => port.why.to_owned(),
            Column::Lane | Column::Backlog | Column::NoBuffer => {
                format!("{:.1}", self.number(port))
            }
            Column::Rings => port.rings.to_string(),
            _ => scaled(self.number(port)),
        }
    }

    /// Order of two ports: words from A to Z, numbers from the greatest.
    pub(super) fn compare(self, one: &Port<'_>, other: &Port<'_>) -> Ordering {
        match self {
            Column::Name => by_number(&one.rates.name).cmp(&by_number(&other.rates.name)),
            Column::Path => by_number(one.path).cmp(&by_number(other.path)),
            Column::Why => one.why.cmp(other.why),
            _ => self.number(other).total_cmp(&self.number(one)),
        }
    }
}

/// A key that sorts `vf2` before `vf10`.
fn by_number(name: &str) -> (&str, u64, &str) {
    let word = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (word, name[word.len()..].parse().unwrap_or(0), name)
}

/// Three significant digits with an SI prefix, as `14.9M`; at most 5 characters below 1000 T.
pub(super) fn scaled(value: f64) -> String {
    let mut value = value;
    for prefix in ["", "k", "M", "G"] {
        if value < 999.5 {
            return three(value) + prefix;
        }
        value /= 1000.0;
    }
    three(value) + "T"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        let cases = [
            (0.0, "0"),
            (0.5, "0.50"),
            (12.0, "12.0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (14_880_952.0, "14.9M"),
            (100e9, "100G"),
            (2.5e12, "2.50T"),
        ];
        for (value, text) in cases {
            assert_eq!(scaled(value), text);
        }
    }

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let mut names = ["n/vf10", "n/vf2", "n/uplink", "n/vf", "m/vf3"];
        names.sort_by_key(|name| by_number(name));
        assert_eq!(names, ["m/vf3", "n/uplink", "n/vf", "n/vf2", "n/vf10"]);
    }

    #[test]
    fn columns_fit_80_and_60_columns() {
        for width in [60, 80, 100, 200] {
            let columns = Column::that_fit(width);
            let used: usize = columns.iter().map(|column| column.width() + 1).sum();
            assert!(used <= width + 1, "{width}: {columns:?}");
        }
        let all = Column::value_variants();
        let kept = all
            .iter()
            .filter(|column| !matches!(column, Column::Backlog | Column::NoBuffer | Column::Rings));
        assert_eq!(Column::that_fit(80), kept.copied().collect::<Vec<_>>());
        assert_eq!(Column::that_fit(120), all);
    }
}
