//! Memory and load of the host, from procfs.

use std::path::Path;

use super::reread_file::{RereadFile, first_number};

/// Open `meminfo` and `loadavg`.
#[derive(Debug)]
pub(super) struct HostLoad {
    memory: RereadFile,
    load: RereadFile,
}

impl HostLoad {
    /// Creates the readers without reading.
    pub(super) fn of(proc_root: &Path) -> Self {
        Self {
            memory: RereadFile::new(proc_root.join("meminfo")),
            load: RereadFile::new(proc_root.join("loadavg")),
        }
    }

    /// Returns `MemAvailable` / `MemTotal`, 0 to 1: the part of the memory that is available without swapping.
    pub(super) fn memory_available(&mut self) -> Option<f64> {
        // Both fields are among the first lines of the file.
        self.memory.read(|text| {
            let kib = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name))?;
                first_number(line.strip_prefix(':')?)
            };
            let all = kib("MemTotal").filter(|all| *all > 0.0)?;
            Some(kib("MemAvailable")? / all)
        })
    }

    /// Returns the load average over 5 minutes.
    pub(super) fn load(&mut self) -> Option<f64> {
        self.load.read(|text| text.split(' ').nth(1)?.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_load_are_read_where_the_kernel_tells_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut use_of = HostLoad::of(dir.path());
        assert_eq!((use_of.memory_available(), use_of.load()), (None, None));
        let put = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).expect("is written");
        put(
            "meminfo",
            "MemTotal:       1000 kB\nMemFree:   100 kB\nMemAvailable:    250 kB\n",
        );
        put("loadavg", "0.50 7.25 9.00 2/300 4711\n");
        assert_eq!((use_of.memory_available(), use_of.load()), (Some(0.25), Some(7.25)));
        put("meminfo", "MemTotal: 0 kB\nMemAvailable: -1 kB\n");
        put("loadavg", "garbage");
        assert_eq!((use_of.memory_available(), use_of.load()), (None, None));
        let mut own = HostLoad::of(Path::new("/proc"));
        assert!(own.memory_available().is_some_and(|part| part > 0.0 && part <= 1.0) && own.load().is_some());
    }
}
