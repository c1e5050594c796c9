//! Memory that the agent returns to the system after its start.
//!
//! Reading the catalogue, the settings and the spool takes several times the memory and code pages that the agent
//! needs afterwards. Without an explicit call the allocator retains the freed memory, and the kernel continues to
//! count the code pages.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time after which everything has started and every collector has polled once.
pub(crate) const SETTLED: Duration = Duration::from_secs(3);

/// Makes all threads share one heap: otherwise a dozen threads that allocate occasionally leave a dozen fragmented
/// heaps. Must be called before threads are started.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number in the allocator, which guards it by a lock of its own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Releases memory that only the start needed. Code pages are read again from the page cache on use.
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
        // SAFETY: the range belongs to this program, is readable or executable but not writable, and the program is
        // position-independent code, so the range is unmodified since it was loaded: its pages equal the file, and
        // dropping them changes nothing observable.
        unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED);
        }
    }
}

/// Parses a line of `/proc/self/maps` and returns start and length of an unmodified mapping of the program: its code,
/// or the part before it in the file (constants, and tables that only the loader needs). `7f3c000-7f3d000 r-xp
/// 00002000 fd:01 1234 /usr/bin/rankguard`. The part behind the code was written by the loader, even where it is
/// read-only afterwards.
fn unwritten(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut words = line.splitn(6, ' ');
    let range = words.next()?;
    let rights = words.next()?;
    let offset = words.next()?;
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
