//! What the agent gives back once it has started.
//!
//! Reading the catalogue, the settings and the spool takes several times the memory, and the code, that the agent needs from
//! then on. The allocator keeps the former, and the kernel counts the latter, for good, unless they are told.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// After this, everything has started and looked once.
pub(crate) const SETTLED: Duration = Duration::from_secs(3);

/// Threads share one heap: a dozen threads that allocate now and then leave a dozen heaps with holes otherwise. Must come
/// before the threads.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number in the allocator, which guards it by a lock of its own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back what only the start needed. It is read again from the page cache where it is needed after all.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives free pages back and moves nothing.
    unsafe {
        libc::malloc_trim(0);
    }
    let (Ok(maps), Ok(own)) = (fs::read_to_string("/proc/self/maps"), std::env::current_exe()) else {
        return;
    };
    for (start, length) in maps.lines().filter_map(|line| unwritten(line, &own)) {
        // SAFETY: the range is of this very program, which may be read, or run, and not written, and which was compiled to be
        // position-independent, so nobody has written to it while it was loaded: its pages are those of the file, and
        // dropping them from this process changes nothing that can be observed.
        unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED);
        }
    }
}

/// Start and length of a mapping that nobody has written to: a program's code, or what lies before it in the file (constants,
/// and tables that only the loader needs). `7f3c000-7f3d000 r-xp 00002000 fd:01 1234 /usr/bin/rankguard`. What lies behind the
/// code was written by the loader, even where it may only be read from then on.
fn unwritten(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?;
    let first = offset.bytes().all(|digit| digit == b'0');
    let is_unwritten = rights == "r-xp" || rights == "r--p" && first;
    if !is_unwritten || Path::new(path.trim_start()) != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_wrote_to_is_given_back_and_the_program_runs_on() {
        let line = |rights: &str, path: &str| format!("1000-3000 {rights} 00002000 fd:01 17      {path}");
        let of = |line: &str| unwritten(line, Path::new("/usr/a b/x"));
        assert_eq!(of(&line("r-xp", "/usr/a b/x")), Some((0x1000, 0x2000)));
        let first = line("r--p", "/usr/a b/x").replace("00002000", "00000000");
        assert_eq!(of(&first), Some((0x1000, 0x2000)));
        for other in [
            line("r--p", "/usr/a b/x"),
            line("rwxp", "/usr/a b/x"),
            line("r-xs", "/usr/a b/x"),
            line("r-xp", "/usr/lib/libc.so.6"),
            line("r-xp", "[vdso]"),
            line("r-xp", ""),
            String::new(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
        let maps = fs::read_to_string("/proc/self/maps").expect("there is /proc");
        let own = std::env::current_exe().expect("this test has a file");
        assert!(maps.lines().any(|line| unwritten(line, &own).is_some()), "{maps}");
        give_back();
        let sum: u64 = (0..1000_u64).map(std::hint::black_box).sum();
        assert_eq!(sum, 499_500);
    }
}
