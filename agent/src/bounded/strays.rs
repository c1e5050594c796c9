//! Processes that a bounded program started and left.

use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{GONE, WORD, pid};

/// Kills every process with the marker and returns their number. New ones may start during the scan, so that it repeats
/// until there are none, or until [`GONE`] is over.
pub(super) fn end_strays(word: &str) -> usize {
    let wanted = format!("{WORD}={word}");
    let until = Instant::now() + GONE;
    let mut ended = std::collections::BTreeSet::new();
    loop {
        let alive = carriers(wanted.as_bytes());
        if alive.is_empty() || Instant::now() >= until {
            return ended.len();
        }
        for number in alive {
            // Checked again through the handle, because the process id may have been reused.
            let Some(pid) = pid(number) else { continue };
            let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            if carries(number, wanted.as_bytes()) && pidfd_send_signal(handle, Signal::KILL).is_ok() {
                ended.insert(number);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn carriers(wanted: &[u8]) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|number| carries(*number, wanted)).collect()
}

/// True if a process has the marker. A zombie has no environment and no marker.
fn carries(number: u32, wanted: &[u8]) -> bool {
    std::fs::read(format!("/proc/{number}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|pair| pair == wanted))
}
