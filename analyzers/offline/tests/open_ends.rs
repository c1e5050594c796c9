//! Logs of runs that just end.

use crate::folders::group;

/// t5x, skypilot#825, Lightning#5750, OpenNMT-py#1362.
#[test]
fn logs_that_show_work_in_other_words_and_just_end_are_noted() {
    for (log, last) in [
        (
            "I0426 13:05:58.556400 140074531202880 trainer.py:517] Training: step 23\nI0426 13:06:09.237899 140074531202880 \
             trainer.py:517] Training: step 34\n",
            2,
        ),
        (
            "(node-0 pid=26831) Epoch: 0, Accuracy: 0.0\n(node-0 pid=26831) Local Rank: 0, Epoch: 10, Training ...\n(node-0 pid=26831) \
             Epoch: 10, Accuracy: 0.6676\n",
            3,
        ),
        (
            "Validating:  94%|#########4| 264/282 [13:36<01:02,  3.50s/it]\nEpoch 54: 100%|##########| 2950/2950 [1:03:38<00:00,  \
             1.29s/it, loss=0.541, v_num=0]\n",
            2,
        ),
        (
            "[2019-03-21 16:46:59,213 INFO] Step 100/200000; acc:   4.28; ppl: 2306.25; xent: 7.74; lr: 0.00001\n",
            1,
        ),
    ] {
        let found = group(&[("run.log", log)]);
        assert!(found.cases.is_empty(), "{log}: {:?}", found.cases);
        let lines: Vec<u64> = found.open_ends.iter().map(|end| end.line).collect();
        assert_eq!(lines, [last], "{log}");
    }
    for log in [
        "Epoch 3/3: 100%|##########| 2950/2950 [1:03:38<00:00,  1.29s/it, loss=0.541]\n",
        "100%|##########| 2950/2950 [1:03:38<00:00,  1.29s/it, loss=0.541]\n",
        "Epoch: 10, Accuracy: 0.6676\nTraining finished\n",
    ] {
        assert!(group(&[("run.log", log)]).open_ends.is_empty(), "{log}");
    }
}
