//! Damaged Parquet: the library that reads the format panics on some damage, and no panic message may be printed. A
//! separate file, because the hook that counts messages is global to the process.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rankguard_datasets::{OutputFormat, TableKind, open, open_mapped};

/// Number of panics with a printed message.
static PANICS: AtomicU32 = AtomicU32::new(0);

const CAPACITY: &str = "0,add,node1\n5,add,node2\n9,remove,node1\n";
const MAPPING: &str =
    "table = \"capacity\"\nformat = \"parquet\"\ntime = \"unix\"\n[columns]\ntime = \"time\"\nzone = \"zone\"\n";

#[test]
fn a_damaged_parquet_file_is_a_problem() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("the file can be written");
        path
    };
    let data = open(&put("in", CAPACITY.as_bytes())).expect("it is known");
    let mut whole = Vec::new();
    data.export(TableKind::Capacity, OutputFormat::Parquet, &mut whole)
        .expect("it is written");
    let mapping = put("map.toml", MAPPING.as_bytes());
    // Rows and problems.
    let read = |path: &Path| {
        let data = open_mapped(path, &mapping).expect("whatever it holds, it is read");
        (data.rows.values().sum::<u64>(), data.problems.rows_lost())
    };
    std::panic::set_hook(Box::new(|about| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let _ = writeln!(std::io::stderr(), "{about}");
    }));
    assert_eq!(read(&put("file", &whole)), (3, 0));
    let mut damaged = Vec::new();
    let mut short = Vec::new();
    for at in (0..whole.len()).step_by(3) {
        short.push(read(&put("file", &whole[..at])));
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        damaged.push(read(&put("file", &bytes)));
    }
    for (at, (rows, lost)) in short.into_iter().enumerate().map(|(nth, read)| (3 * nth, read)) {
        assert_eq!(rows, 0, "its directory lies at the end, and the file is cut at {at}");
        assert!(lost > 0 || at == 0, "cut at {at}");
    }
    assert!(damaged.iter().all(|(rows, _)| *rows <= 3));
    let told = damaged.iter().filter(|(_, lost)| *lost > 0).count();
    assert!(told > 30, "{told} of {} damages are told", damaged.len());
    assert_eq!(
        PANICS.load(Ordering::Relaxed),
        0,
        "the library's panics are not for people"
    );
}
