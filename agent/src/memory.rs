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
    for (start, length) in maps.lines().filter_map(|line| code(line, &own)) {
        // SAFETY: the range is the code of this very program, which may be read and run and not written, and which was
        // compiled to be position-independent, so nobody has written to it while it was loaded: its pages are those of
        // the file, and dropping them from this process changes nothing that can be observed.
        unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED);
        }
    }
}

/// Start and length of a mapping of a program's code: `7f3c000-7f3d000 r-xp 00002000 fd:01 1234 /usr/bin/rankguard`.
fn code(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, path) = (words.next()?, words.next()?, words.nth(3)?);
    if rights != "r-xp" || Path::new(path.trim_start()) != program {
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
    fn only_the_programs_own_code_is_given_back_and_it_runs_on() {
        let line = |rights: &str, path: &str| format!("1000-3000 {rights} 00002000 fd:01 17      {path}");
        let of = |line: &str| code(line, Path::new("/usr/a b/x"));
        assert_eq!(of(&line("r-xp", "/usr/a b/x")), Some((0x1000, 0x2000)));
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
        assert!(maps.lines().any(|line| code(line, &own).is_some()), "{maps}");
        give_back();
        let sum: u64 = (0..1000_u64).map(std::hint::black_box).sum();
        assert_eq!(sum, 499_500);
    }
}
