//! Mount table of a process.

use std::path::Path;

/// Most bytes of a table that are read.
const BYTES: u64 = 4 << 20;

/// Mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Major and minor number, the same for all mounts of a file system: `8:1`.
    pub(crate) dev: String,
    pub(crate) place: String,
    pub(crate) kind: String,
    /// Device, or server with a path.
    pub(crate) source: String,
    options: String,
}

impl MountEntry {
    /// Returns the value of an option of the file system itself.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the layers of an overlay; empty for other file systems.
    pub(crate) fn layers(&self) -> Vec<&str> {
        let all = ["upperdir", "workdir", "lowerdir"]
            .iter()
            .filter_map(|name| self.option(name));
        let overlay = self.kind == "overlay";
        all.filter(|_| overlay).flat_map(|folders| folders.split(':')).collect()
    }
}

/// All mounts, in mount order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountTable(Vec<MountEntry>);

impl MountTable {
    /// Reads the table of a process; none if it is not readable.
    pub(crate) fn read(proc_root: &Path, process: &str) -> Option<Self> {
        let text = super::process::text(&proc_root.join(process).join("mountinfo"), BYTES)?;
        Some(Self::of(&text))
    }

    /// Parses lines such as `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`.
    fn of(text: &str) -> Self {
        let mounts = text.lines().filter_map(|line| {
            let (own, beyond) = line.split_once(" - ")?;
            let mut own = own.split(' ').skip(2);
            let mut beyond = beyond.split(' ');
            Some(MountEntry {
                dev: own.next()?.to_owned(),
                place: unescape(own.nth(1)?),
                kind: beyond.next()?.to_owned(),
                source: unescape(beyond.next()?),
                options: beyond.next().unwrap_or_default().to_owned(),
            })
        });
        Self(mounts.collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MountEntry> {
        self.0.iter()
    }

    /// Returns the mount that holds a path: the deepest, and of two at one place the later one, which hides the other.
    pub(crate) fn holding(&self, path: &str) -> Option<&MountEntry> {
        let holds = |mount: &&MountEntry| {
            let below = path.strip_prefix(mount.place.trim_end_matches('/'));
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.iter().filter(holds).max_by_key(|mount| mount.place.len())
    }
}

/// Decodes the octal escapes of a mount point (`\040` for a space).
pub(crate) fn unescape(place: &str) -> String {
    let mut out = Vec::with_capacity(place.len());
    let mut rest = place.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_path_lies_on_the_deepest_mount_that_is_not_hidden() {
        let table = MountTable::of(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 7:0 / /data rw shared:3 - ext4 /dev/loop0 rw\n\
             3 1 0:31 / /data rw - nfs4 nas:/x rw,vers=4.2,addr=10.0.0.7\n4 1 0:9 / /my\\040disk rw - tmpfs tmpfs rw\n\
             garbage\n5 1 0:8 / /run rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d\n",
        );
        let dev = |path: &str| table.holding(path).unwrap().dev.as_str();
        assert_eq!(
            (dev("/data/x"), dev("/data"), dev("/database")),
            ("0:31", "0:31", "8:1")
        );
        assert_eq!((dev("/my disk/x"), dev("/")), ("0:9", "8:1"));
        assert_eq!(table.holding("/data").unwrap().option("addr"), Some("10.0.0.7"));
        assert_eq!(table.holding("/run/x").unwrap().layers(), ["/c", "/d", "/a", "/b"]);
        assert_eq!(table.holding("relative"), None);
        assert!(
            MountTable::read(Path::new("/proc"), "self")
                .unwrap()
                .holding("/proc/self")
                .is_some()
        );
    }
}
