//! Damaged input of every source: for any wrong byte (every fourth is tried), reading ends with values and problems,
//! never with a panic, and no rows are invented.

use std::fs;

use rankguard_datasets::{Dataset, open};

/// One small file of each form that has its own reader.
const FILES: &[&str] = &[
    "[{\"node_id\":\"a\",\"event_time\":1.5,\"event_type\":\"fault_start\",\"fault_type\":{\"Level\":\"l\",\"Class\":\"c\",\"Desc\":\"d\"}},\n{\"node_id\":\"a\",\"event_time\":2.5,\"event_type\":\"fault_end\",\"fault_type\":{\"Level\":\"l\",\"Class\":\"c\",\"Desc\":\"d\"}}]",
    "SN,location,insert,remove,duration,out,event\n0320,c1,2017-03-11 21:00:00,2017-03-12 21:00:00,82800,FALSE,DBE\n",
    "System,nodes,nodenum,nodenumz,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software\n2,49,1,0,6/21/2005 10:54,6/21/2005 11:00,6,,Disk,,,,\n",
    "# event_id node_name event_type event_start_time event_stop_time\n0 a 1 100 200\n1 a 0 200 300\n",
    "2005-06-05-01.55.06.697467 R11-M0 RAS KERNEL FATAL rts panic!\n2005-06-05-01.55.07.697467 R11-M0 RAS KERNEL FATAL x\n",
    "- 1117838570 2005.06.03 R02 2005-06-03-15.42.50.675872 R02 RAS KERNEL INFO instruction cache\n",
    ",Timestamp,SSC,SSU,Slot,Unique enclosure,Rack id\n0,2019-01-04T14:41:12-0500,2,g,1,29,28\n",
    "{\"metadata\": {\"gap_seconds\": 32}, \"data\": [0, 1, null, 1], \"prices\": [0.9, 0.9]}",
    "0,add,node1\n5,add,node2\n9,remove,node1\n",
    "2021-12-11, 11:11:30, 55\n2021-12-11, 11:13:10, 54\n",
    "JobID|State|Start|End|Elapsed\n1|FAILED|2021-04-05T02:07:20|Unknown|1-00:00:01\n1.batch|FAILED|a\nb|c|d\n",
    "LineId,Date,Time,Level,Content,EventId,EventTemplate\n1,081109,203615,INFO,\"a, b\",E1,x\n2,17/06/09,20:10:40,INFO,a,E1,x\n",
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid (PCI:0000:38:00): 13, x\n6,3964,206764307,-;open\n<6>[   13.7] x\n[Sun Feb 23 16:24:18 2025] y\n",
    "[{\"status\":\"Pass\",\"vc\":\"v\",\"jobid\":\"a\",\"attempts\":[{\"start_time\":\"2017-10-09 07:02:00\",\"end_time\":null,\"detail\":[{\"ip\":\"m\",\"gpus\":[\"g\"]}]}]}]",
    "# TYPE XPU_TIMER_COMMON_HANG gauge\n# TYPE x gauge\nXPU_TIMER_COMMON_HANG{rank=\"3\"} 1\n",
    "[2025-04-21T23:31:09.074419] [426] [22b7] [T] [#step] [BEGIN] {\"a\": 1}\n",
];

/// Replacements of each byte, one after the other.
const WRONG: &[u8] = b"\"\n,\xff";

fn rows(data: &Dataset) -> u64 {
    data.rows.values().sum()
}

#[test]
fn every_wrong_byte_and_every_early_end_is_survived() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    let mut known = 0_u32;
    let mut told = 0_u32;
    let mut ask = |bytes: &[u8], most: u64| {
        fs::write(&path, bytes).expect("the file can be written");
        if let Ok(data) = open(&path) {
            known += 1;
            told += u32::from(!data.problems.is_empty());
            assert!(
                rows(&data) <= most,
                "{} rows of {}",
                rows(&data),
                String::from_utf8_lossy(bytes)
            );
        }
    };
    for text in FILES {
        // A line, an element or a tick gives at most a row in each of two tables; a wrong byte may split one.
        let most = 2 * text.split(['\n', ',', '{']).count() as u64;
        for at in (0..text.len()).step_by(4) {
            ask(&text.as_bytes()[..at], most);
            for wrong in WRONG {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at] = *wrong;
                ask(&bytes, most);
            }
        }
    }
    assert!(known > 1_000 && told > 200, "{known} were read, {told} with problems");
}
