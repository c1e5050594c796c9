//! Comparison of saves through windows with saves of whole images: less memory, but the trainer waits for the disk.

use serde::{Deserialize, Serialize};

/// State size, window size and transfer times of one node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowedSave {
    /// State of all ranks of the node, bytes.
    pub state: u64,
    /// Windows of all ranks of the node, bytes.
    pub windows: u64,
    /// Time to copy the state, seconds.
    pub copy_s: f64,
    /// Time to write the state to disk, seconds.
    pub write_s: f64,
}

impl WindowedSave {
    /// Returns how long a save blocks the trainer, seconds: when the last byte is copied, all but the last window has
    /// been written. Never less than the copy. Measured with 64 MiB windows and two ranks of 1 GiB each, in units of an
    /// O_DIRECT write: blocked for 1.11, committed after 1.16.
    pub fn blocking_s(&self) -> f64 {
        let through = match self.state {
            0 => 0.0,
            state => 1.0 - self.windows.min(state) as f64 / state as f64,
        };
        self.copy_s.max(self.write_s * through)
    }

    /// Returns the time until the image is usable, seconds.
    pub fn latency_s(&self) -> f64 {
        self.copy_s.max(self.write_s)
    }
}

/// Recommended way to save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaveRecommendation {
    /// Save whole images.
    Whole,
    /// Save through windows.
    Windows,
    /// Neither fits in memory.
    Neither,
}

/// Selects between two ways to save, each given as (fits in memory, predicted effective training time ratio): the one
/// that fits, or the better ratio if both fit. Whole images win a tie, because only they can be copied to other nodes.
pub fn prefer(whole: (bool, f64), windows: (bool, f64)) -> SaveRecommendation {
    match (whole, windows) {
        ((false, _), (false, _)) => SaveRecommendation::Neither,
        ((false, _), (true, _)) => SaveRecommendation::Windows,
        ((true, lost), (true, other)) if other > lost => SaveRecommendation::Windows,
        ((true, _), _) => SaveRecommendation::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_waits_for_the_write_less_one_window() {
        let passing = |windows| WindowedSave {
            state: 100,
            windows,
            copy_s: 2.0,
            write_s: 40.0,
        };
        assert_eq!(passing(10).blocking_s(), 36.0);
        assert_eq!(passing(99).blocking_s(), 2.0, "it is copied, whatever is written");
        assert_eq!(
            passing(1000).blocking_s(),
            2.0,
            "a window that holds the image is one of its size"
        );
        assert_eq!(passing(10).latency_s(), 40.0);
        let none = WindowedSave {
            state: 0,
            ..passing(10)
        };
        assert_eq!(none.blocking_s(), 2.0);
    }

    /// Two ranks of 1 GiB each with 64 MiB windows, in units of an O_DIRECT write of the same run.
    #[test]
    fn the_formula_is_near_what_was_measured() {
        let measured = WindowedSave {
            state: 2 << 30,
            windows: 128 << 20,
            copy_s: 0.3,
            write_s: 1.16,
        };
        assert!((measured.blocking_s() - 1.11).abs() < 0.03, "{}", measured.blocking_s());
    }

    #[test]
    fn what_has_room_and_loses_less_is_preferred() {
        for (whole, windows, wanted) in [
            ((true, 0.9), (true, 0.8), SaveRecommendation::Whole),
            ((true, 0.9), (true, 0.9), SaveRecommendation::Whole),
            ((true, 0.8), (true, 0.9), SaveRecommendation::Windows),
            ((true, 0.8), (false, 0.9), SaveRecommendation::Whole),
            ((false, 0.9), (true, 0.8), SaveRecommendation::Windows),
            ((false, 0.9), (false, 0.8), SaveRecommendation::Neither),
        ] {
            assert_eq!(prefer(whole, windows), wanted, "{whole:?} {windows:?}");
        }
    }
}
