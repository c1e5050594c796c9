use proptest::prelude::*;

use super::*;

/// Answer in the form of NCCL's user guide and of `client_support.cc`, written by hand.
const ANSWER: &str = "\
NCCL version 2.28.3 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        31   RUNNING  INCOMPLETE,MISMATCH
    1         4         1         8         8        32   RUNNING  ERROR

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 40962 on node 172.16.64.212 managing GPUs 0,1 (NVML 4,5)

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

#1-2 (cf264af53edbe986) ERROR
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 1 -- GPU 1 managed by process 7 on node 172.16.64.210
  Rank 2 -- GPU 2 (NVML 3) managed by process 8 on node 172.16.64.210
  Rank 4 reported System error -- GPU 4 managed by process 9 on node 172.16.64.210

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  29 ranks have status RUNNING
  Rank 3 has status INIT -- [process information not found]

  Communicator ranks have different AllReduce operation counts
  28 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 6 -- GPU 6 managed by process 483078 on node 172.16.64.210
  Rank 9 has not launched any operations -- GPU 1 managed by process 5 on node 172.16.64.211
";

fn told(answer: &RasReport) -> Vec<(Option<u32>, &str, &DifferenceKind)> {
    let member = |trouble: &RankDifference| trouble.member.as_ref().map(|member| member.rank);
    let troubles = answer.troubles.iter();
    troubles
        .map(|trouble| (member(trouble), trouble.place.as_str(), &trouble.what))
        .collect()
}

#[test]
fn whoever_differs_is_read_with_its_place_and_how() {
    let answer = RasReport::read(ANSWER);
    assert_eq!(
        (answer.version.as_str(), answer.whole, answer.further),
        ("2.28.3", true, 0)
    );
    let launched = |launched| DifferenceKind::Launched {
        operation: "AllReduce".to_owned(),
        launched,
        most: 6650,
    };
    let error = |error: &str| DifferenceKind::Error(error.to_owned());
    let status = DifferenceKind::Status {
        status: "INIT".to_owned(),
        most: "RUNNING".to_owned(),
    };
    let wanted = [
        (None, "process 3487984 on 172.16.64.213, GPU 5", &DifferenceKind::Silent),
        (
            None,
            "process 40962 on 172.16.64.212, GPUs 0,1 (NVML 4,5)",
            &DifferenceKind::Dead,
        ),
        (
            Some(21),
            "process 3487984 on 172.16.64.213, GPU 5",
            &DifferenceKind::Silent,
        ),
        (
            Some(1),
            "process 7 on 172.16.64.210, GPU 1",
            &error("Remote process error"),
        ),
        (
            Some(2),
            "process 8 on 172.16.64.210, GPU 2 (NVML 3)",
            &error("Remote process error"),
        ),
        (Some(4), "process 9 on 172.16.64.210, GPU 4", &error("System error")),
        (Some(3), "", &status),
        (Some(0), "process 483072 on 172.16.64.210, GPU 0", &launched(6649)),
        (Some(6), "process 483078 on 172.16.64.210, GPU 6", &launched(6649)),
        (Some(9), "process 5 on 172.16.64.211, GPU 1", &launched(0)),
    ];
    assert_eq!(told(&answer), wanted);
    let sizes: Vec<u32> = answer
        .troubles
        .iter()
        .filter_map(|it| Some(it.member.as_ref()?.size))
        .collect();
    assert_eq!(sizes, [32, 8, 8, 8, 32, 32, 32, 32]);
}

#[test]
fn of_two_ranks_the_one_with_fewer_operations_differs_and_old_versions_name_no_operation() {
    let text = "#0-0 (a) MISMATCH\n  Communicator ranks have different collective operation counts\n  \
                Rank 1 has launched up to operation 5 -- GPU 1 managed by process 2 on node a\n  \
                Rank 0 has launched up to operation 4 -- GPU 0 managed by process 1 on node a\n";
    let answer = RasReport::read(text);
    let what = DifferenceKind::Launched {
        operation: "collective".to_owned(),
        launched: 4,
        most: 5,
    };
    assert_eq!(told(&answer), [(Some(0), "process 1 on a, GPU 0", &what)]);
    assert!(!answer.whole);
}

#[test]
fn troubles_are_bounded() {
    let mut text = "#0-0 (a) INCOMPLETE\n".to_owned();
    (0..1000).for_each(|rank| text.push_str(&format!("  Rank {rank} -- [process information not found]\n")));
    let answer = RasReport::read(&text);
    assert_eq!((answer.troubles.len(), answer.further), (TROUBLES, 1000 - TROUBLES));
}

#[test]
fn half_an_answer_gives_what_came() {
    for (end, _) in ANSWER.char_indices() {
        let half = RasReport::read(&ANSWER[..end]);
        assert_eq!(
            half.whole,
            end >= ANSWER.find("Warnings").map_or(0, |at| at + "Warnings".len()),
            "{end}"
        );
        assert!(half.troubles.len() <= 10);
    }
}

proptest! {
    /// RG-11.
    #[test]
    fn any_text_is_read(lines in prop::collection::vec(prop_oneof![
        prop::sample::select(ANSWER.lines().map(str::to_owned).collect::<Vec<_>>()),
        ".{0,80}",
        "#[0-9-]{0,12} ?\\(?.{0,9}\\)? (INCOMPLETE|ERROR|MISMATCH)?",
        " {0,2}(Rank|Process|[0-9]{1,20} ranks) .{0,60}",
    ], 0..60)) {
        let answer = RasReport::read(&lines.join("\n"));
        prop_assert!(answer.troubles.len() + answer.further <= lines.len());
    }
}
