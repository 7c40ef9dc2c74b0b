use proptest::prelude::*;

use super::labels::spread;
use super::ticks::Ticks;
use super::{escape, text_width};

fn texts(max: f64) -> Vec<String> {
    Ticks::up_to(max, 5).each().map(|(_, text)| text).collect()
}

#[test]
fn round_ticks() {
    assert_eq!(texts(7.3), ["0", "2", "4", "6", "8"]);
    assert_eq!(texts(10.0), ["0", "2", "4", "6", "8", "10"]);
    assert_eq!(texts(0.34), ["0", "0.1", "0.2", "0.3", "0.4"]);
    assert_eq!(texts(216.4), ["0", "50", "100", "150", "200", "250"]);
    assert_eq!(texts(0.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    assert_eq!(texts(f64::NAN), texts(0.0));
}

#[test]
fn text_is_escaped() {
    assert_eq!(escape("<a b=\"c\">&'\u{7}"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;?");
}

#[test]
fn longer_text_is_wider() {
    assert!(text_width("1518 B") > text_width("64 B"));
    assert!(text_width("1518 B") < 60.0);
}

proptest! {
    #[test]
    fn ticks_cover_every_value_in_round_steps(exponent in -6.0..7.0_f64, wanted in 2_usize..10) {
        let max = 10_f64.powf(exponent);
        let ticks = Ticks::up_to(max, wanted);
        let each: Vec<(f64, String)> = ticks.each().collect();
        let step = each[1].0;
        prop_assert!(ticks.end() >= max * (1.0 - 1e-6), "the axis ends below its largest value");
        prop_assert!(ticks.end() - step < max, "the last step is empty");
        prop_assert!(each.len() <= wanted + 1);
        // Consecutive steps differ by a factor of at most 5, so there are never many fewer ticks
        // than wanted.
        prop_assert!(each.len() > wanted.div_ceil(3));
        let digit = step / 10_f64.powf((step * (1.0 + 1e-9)).log10().floor());
        prop_assert!([1.0, 2.0, 5.0].iter().any(|d| (digit - d).abs() < 1e-6), "step {step}");
        // The texts are exact and unique.
        for (value, text) in &each {
            let told: f64 = text.parse().unwrap();
            prop_assert!((told - value).abs() < step * 1e-6, "{value} as {text}");
        }
    }

    #[test]
    fn labels_do_not_touch(wanted in prop::collection::vec(0.0..200.0_f64, 1..8)) {
        let placed = spread(&wanted, 15.0, (0.0, 200.0));
        for a in 0..wanted.len() {
            prop_assert!((-1e-9..=200.0 + 1e-9).contains(&placed[a]));
            for b in 0..a {
                prop_assert!((placed[a] - placed[b]).abs() >= 15.0 - 1e-9);
                prop_assert!(wanted[a] == wanted[b] || (wanted[a] < wanted[b]) == (placed[a] < placed[b]));
            }
        }
    }
}
