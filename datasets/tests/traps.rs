//! Bad input and pitfalls common to data sets: retained, lost and reported rows.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rankguard_datasets::{Dataset, MAX_LINE, TableKind, open};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("the file can be written");
    path
}

fn read(bytes: impl AsRef<[u8]>) -> Dataset {
    let folder = folder();
    open(&put(folder.path(), "file", bytes)).expect("it is known")
}

const DISKS: &str =
    ",Timestamp,SSC,SSU,Enclosure,Slot,Seagate slot,Rack unit,Unique enclosure,Rack id,slot bin hor,slot bin ver\n";

fn disk(time: &str, slot: u32) -> String {
    format!("0,{time},2,g,1,{slot},28,1,1,8,7,3\n")
}

#[test]
fn offsets_without_a_colon_that_change_in_autumn_are_instants() {
    let data = read(format!(
        "{DISKS}{}{}",
        disk("2019-11-03T01:59:00-0400", 1),
        disk("2019-11-03T01:01:00-0500", 2)
    ));
    let times = data.f64s(TableKind::Failures, "time").expect("times");
    assert_eq!(times[0].zip(times[1]).map(|(one, other)| other - one), Some(120.0));
    assert_eq!(data.problems.count("order"), 0, "the clock went back, time did not");
}

#[test]
fn rows_out_of_order_and_repeats_are_kept_and_counted() {
    let early = disk("2019-01-01T00:00:00-0500", 1);
    let late = disk("2019-01-02T00:00:00-0500", 2);
    let data = read(format!("{DISKS}{late}{early}{early}"));
    assert_eq!(data.rows[&TableKind::Failures], 3);
    assert_eq!((data.problems.count("order"), data.problems.count("duplicate")), (1, 1));
    assert_eq!(data.problems.rows_lost(), 0);
    assert_eq!(data.problems.kinds["order"].first[0].line, 3);
}

#[test]
fn a_row_of_several_lines_that_comes_twice_is_told() {
    let long = disk("2019-01-01T00:00:00-0500", 1).replace(",g,", ",\"g\nh\",");
    let data = read(format!("{DISKS}{long}{}{long}", disk("2019-01-01T00:00:00-0500", 2)));
    assert_eq!((data.rows[&TableKind::Failures], data.problems.rows_lost()), (3, 0));
    let told = &data.problems.kinds["duplicate"];
    assert_eq!((told.count, told.first[0].line), (1, 5), "the line on which it begins");
}

#[test]
fn wrong_columns_bad_times_and_open_quotes_lose_their_row_and_no_other() {
    let good = disk("2019-01-01T00:00:00-0500", 1);
    let data = read(format!(
        "{DISKS}1,2,3\n{good}0,yesterday,2,g,1,1,28,1,1,8,7,3\n0,\"open,2,g\n{}",
        disk("2019-01-02T00:00:00-0500", 2)
    ));
    assert_eq!(data.rows[&TableKind::Failures], 2);
    for (kind, line) in [("width", 2), ("bad-value", 4), ("open-quote", 5)] {
        let group = &data.problems.kinds[kind];
        assert_eq!(
            (group.count, group.rows_lost, group.first[0].line),
            (1, 1, line),
            "{kind}"
        );
    }
    assert_eq!((data.files[0].rows_read, data.files[0].rows_skipped), (5, 3));
}

#[test]
fn times_with_and_without_an_offset_in_one_file_are_told() {
    let folder = folder();
    let file = put(
        folder.path(),
        "own.csv",
        "when,host\n2024-03-10T12:00:00Z,a\n2024-03-10T14:00:00+02:00,b\n2024-03-10T08:00:00,c\n2024-03-10T02:30:00,d\n",
    );
    let mapping = put(
        folder.path(),
        "map.toml",
        "table = \"events\"\nformat = \"csv\"\ntime = \"iso\"\nzone = \"EST5EDT,M3.2.0,M11.1.0\"\n[columns]\ntime = \"when\"\nnode = \"host\"\n",
    );
    let data = rankguard_datasets::open_mapped(&file, &mapping).expect("a mapping");
    let times = data.f64s(TableKind::Events, "time").expect("times");
    // Noon in UTC, the same with another offset, and eight in the morning of New York, where daylight saving time had
    // begun that day.
    assert_eq!(times[..3], [Some(1_710_072_000.0); 3]);
    let mixed = &data.problems.kinds["mixed-offsets"];
    assert_eq!((mixed.count, mixed.rows_lost, mixed.first[0].line), (2, 0, 4));
    assert_eq!(
        data.problems.count("clock-change"),
        1,
        "half past two did not come that night"
    );
}

#[test]
fn a_zstandard_file_that_is_cut_short_gives_what_came_before() {
    let text = format!("{DISKS}{}", disk("2019-01-01T00:00:00-0500", 1).repeat(40_000));
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
    let whole = read(&packed);
    assert_eq!(
        (whole.rows[&TableKind::Failures], whole.problems.rows_lost()),
        (40_000, 0)
    );
    let data = read(&packed[..packed.len() / 2]);
    let rows = data.rows[&TableKind::Failures];
    assert!((1_000..40_000).contains(&rows), "{rows}");
    assert_eq!(data.problems.count("truncated"), 1);
}

/// "Unicode text" of a spreadsheet, in both byte orders, and compressed.
#[test]
fn utf_16_is_read_as_what_it_says() {
    let text = format!(
        "{DISKS}{}",
        disk("2019-01-01T00:00:00-0500", 1).replace(",g,", ",gr\u{f6}\u{df}e \u{1f9ea},")
    );
    let wanted = read(&text);
    let units: Vec<u16> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).collect();
    let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&little).expect("memory takes it");
    for bytes in [&little, &big, &packed.finish().expect("memory takes it")] {
        let data = read(bytes);
        assert_eq!((&data.rows, data.problems.rows_lost()), (&wanted.rows, 0));
        assert_eq!(data.problems.count("encoding"), 0);
    }
    // Half a character at the end is one unknown letter, and the row is present.
    assert_eq!(read(&little[..little.len() - 3]).rows, wanted.rows);
}

#[test]
fn problems_are_told_a_hundred_times_and_counted_without_end() {
    let data = read(format!("{DISKS}{}", "1,2,3\n".repeat(250)));
    let group = &data.problems.kinds["width"];
    assert_eq!((group.count, group.first.len()), (250, 100));
}

#[test]
fn a_gzip_that_is_cut_short_gives_what_came_before() {
    let mut text = DISKS.to_owned();
    // Digits that do not repeat, so that the compressed stream is long enough to be cut in its middle.
    for row in 0..20_000_u32 {
        text.push_str(&disk("2019-01-01T00:00:00-0500", row.wrapping_mul(2_654_435_761)));
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).expect("memory takes it");
    let packed = packed.finish().expect("memory takes it");
    let whole = read(&packed);
    assert_eq!(
        (whole.rows[&TableKind::Failures], whole.problems.rows_lost()),
        (20_000, 0)
    );
    let data = read(&packed[..packed.len() / 2]);
    let rows = data.rows[&TableKind::Failures];
    assert!((1_000..20_000).contains(&rows), "{rows}");
    assert_eq!(data.problems.count("truncated"), 1);
    assert!(data.problems.rows_lost() >= 1);
}

#[test]
fn a_line_without_an_end_is_passed_over_and_not_held() {
    let mut text = format!("{DISKS}{}", disk("2019-01-01T00:00:00-0500", 1)).into_bytes();
    text.extend(std::iter::repeat_n(b'x', 3 * MAX_LINE));
    text.push(b'\n');
    text.extend(disk("2019-01-02T00:00:00-0500", 2).bytes());
    let data = read(text);
    assert_eq!(data.rows[&TableKind::Failures], 2);
    let group = &data.problems.kinds["line-too-long"];
    assert_eq!((group.rows_lost, group.first[0].line), (1, 3));
}

#[test]
fn a_json_element_without_an_end_is_passed_over_and_a_cut_array_is_told() {
    let event = |node: &str, kind: &str, day: f64| {
        format!(
            "{{\"node_id\":\"{node}\",\"event_time\":{day},\"event_type\":\"{kind}\",\"fault_type\":{{\"Level\":\"l\",\"Class\":\"GPU\",\"Desc\":\"d\"}}}}"
        )
    };
    let long = event(&"n".repeat(2 * MAX_LINE), "fault_start", 1.0);
    let start = event("a", "fault_start", 1.0);
    let end = event("a", "fault_end", 2.5);
    let again = event("b", "fault_start", 3.0);
    let stray = event("c", "fault_end", 3.0);
    let data = read(format!("[{start},\n{long},\n{end},{stray},{{\"node_id\":1}},\n{again}"));
    assert_eq!(
        data.f64s(TableKind::Failures, "repair_s").expect("repair times"),
        [Some(1.5 * 86_400.0), None]
    );
    for (kind, count) in [("line-too-long", 1), ("bad-row", 1), ("unpaired", 2), ("truncated", 1)] {
        assert_eq!(data.problems.count(kind), count, "{kind}");
    }
    assert_eq!(
        data.population.map(|all| all.count),
        Some(400),
        "stated, not counted from nodes that failed"
    );
}

#[test]
fn down_time_wins_over_subtraction_where_the_clock_changed() {
    let head = "LANL Hardware/Systems/Software Failure Data,,\nSystem,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,fru type,mem,cputype,memtype,num intercon,purpose,Prob Started (mm/dd/yy hh:mm),Prob Fixed (mm/dd/yy hh:mm),Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software,Same Event\n";
    let row = |start: &str, end: &str, minutes: u32| {
        format!(
            "2,cluster,49,6152,80,5,5,5-Apr,Jan-97,current,part,80,1,1,0,compute,{start},{end},{minutes},,Memory,,,,,No\n"
        )
    };
    let data = read(format!(
        "{head}{}{}",
        row("10/30/2004 12:00", "10/31/2004 12:00", 1_500),
        row("6/1/2004 12:00", "6/1/2004 13:00", 300)
    ));
    assert_eq!(data.source, "lanl");
    assert_eq!(
        data.f64s(TableKind::Failures, "repair_s").expect("down times"),
        [Some(90_000.0), Some(18_000.0)]
    );
    assert_eq!(
        data.problems.count("clock"),
        1,
        "25 hours between two noons are right, five between twelve and one are not"
    );
    assert_eq!(
        data.strings(TableKind::Failures, "node").expect("nodes")[0].as_deref(),
        Some("2/5")
    );
    assert_eq!(
        data.population.map(|all| all.count),
        Some(49),
        "as the system states, not one failing node"
    );
}

#[test]
fn serial_numbers_keep_their_zero_and_events_without_a_stay_are_failures() {
    let data = read(
        "SN,location,insert,remove,duration,out,event\n\
         0320117100060,c11-2c1s4n1,2017-03-11 21:00:00,2017-03-12 21:00:00,82800,FALSE,DBE\n\
         0320117100060,c11-2c1s4n1,,2017-04-12 21:00:00,,,OTB\n",
    );
    assert_eq!(
        (data.rows[&TableKind::Outages], data.rows[&TableKind::Failures]),
        (1, 2)
    );
    assert_eq!(
        data.strings(TableKind::Failures, "device").expect("serials")[0].as_deref(),
        Some("0320117100060")
    );
    assert_eq!(
        data.f64s(TableKind::Outages, "x_duration_s").expect("durations"),
        [Some(82_800.0)],
        "23 hours, not 24"
    );
    assert_eq!(
        data.population, None,
        "failing GPUs alone say nothing of how many there were"
    );
}

#[test]
fn bytes_that_are_no_utf8_are_latin_1_and_unknown_places_are_null() {
    let mut text = b"2005-10-30-01.30.00.000001 R11-M0 RAS KERNEL FATAL rts panic\n".to_vec();
    text.extend(b"2005-10-30-01.30.00.000000 NULL RAS KERNEL FATAL caf\xe9 \xff\nnonsense\n");
    let data = read(text);
    let messages = data.strings(TableKind::Events, "message").expect("messages");
    assert_eq!(messages[1].as_deref(), Some("café ÿ"));
    assert_eq!(data.strings(TableKind::Events, "node").expect("nodes")[1], None);
    for (kind, count) in [("encoding", 1), ("order", 1), ("bad-row", 1)] {
        assert_eq!(data.problems.count(kind), count, "{kind}");
    }
}

#[test]
fn crlf_byte_order_marks_and_empty_lines_are_nothing() {
    let data = read(format!(
        "\u{feff}{}\r\n\r\n{}\r\n",
        DISKS.trim_end(),
        disk("2019-01-01T00:00:00-0500", 1).trim_end()
    ));
    assert_eq!(data.rows[&TableKind::Failures], 1);
    assert!(data.problems.is_empty(), "{:?}", data.problems);
}

#[test]
fn a_zip_that_is_broken_is_a_problem_and_no_end() {
    let folder = folder();
    put(
        folder.path(),
        "a.csv",
        format!("{DISKS}{}", disk("2019-01-01T00:00:00-0500", 1)),
    );
    put(folder.path(), "b.zip", b"PK\x03\x04and nothing more");
    put(folder.path(), "c.gz", b"\x1f\x8b");
    let data = open(folder.path()).expect("one file is known");
    assert_eq!(data.rows[&TableKind::Failures], 1);
    assert_eq!(data.files.len(), 3);
    assert_eq!(
        data.problems.count("truncated"),
        2,
        "both are told: what they held is not known"
    );
}

#[test]
fn a_stay_of_a_spot_node_ends_where_it_is_removed_and_stays_open_at_the_end() {
    let data = read("480000,add,n1\n480000,add,n2\n500000,remove,n1\n510000,remove,n1\n");
    assert_eq!(
        data.f64s(TableKind::Capacity, "available").expect("counts"),
        [Some(1.0), Some(2.0), Some(1.0), Some(1.0)]
    );
    assert_eq!(data.f64s(TableKind::Outages, "end").expect("ends"), [Some(500.0), None]);
    assert_eq!(data.problems.count("unpaired"), 1);
}

#[test]
fn a_running_pod_is_not_alive_and_a_pending_one_never_started() {
    let data = read(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
         p1,1,1,1,500,,LS,Running,0,100,5\np2,1,1,8,1000,,BE,Pending,0,100,\n",
    );
    let states = data.strings(TableKind::Jobs, "state").expect("states");
    assert_eq!(states[0].as_deref(), Some("other"));
    assert_eq!(states[1].as_deref(), Some("pending"));
    assert_eq!(data.f64s(TableKind::Jobs, "start").expect("starts"), [Some(5.0), None]);
    assert_eq!(data.population, None);
}
