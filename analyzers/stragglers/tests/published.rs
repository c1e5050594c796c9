use rankguard_stragglers::*;
use serde_json::Value;
#[test]
fn published() {
    let dir =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets/bytedance-straggler-traces");
    for job in ["AR", "ST"] {
        let bytes = std::fs::read(dir.join(format!("trace-{job}.parquet"))).unwrap();
        let (timings, problems) = read_timings("t", &bytes);
        let Timings::Operations(rows) = timings else { panic!() };
        let r = analyse(job, &Timings::Operations(rows), None, problems);
        eprintln!("{}", r.lines().join("\n"));
        let w = r.what_if.unwrap();
        eprintln!(
            "S {} launch {} {:?} {:?} {:?} {:?} {:?}",
            w.slowdown, w.launch_slowdown, w.by_dp_rank, w.by_stage, w.by_optype, w.slow_workers, w.last_stage
        );
        let v: Value = serde_json::from_slice(&std::fs::read(dir.join(format!("result-{job}.json"))).unwrap()).unwrap();
        for (k, ours) in [
            ("step_t_base", &w.observed),
            ("step_t_nodelay", &w.simulated),
            ("step_t_noblk", &w.ideal),
        ] {
            let mut m: Vec<(i64, f64)> = v[k]
                .as_object()
                .unwrap()
                .iter()
                .map(|(a, b)| (a.parse().unwrap(), b.as_f64().unwrap()))
                .collect();
            m.sort_by_key(|x| x.0);
            let worst = m
                .iter()
                .zip(ours)
                .map(|((_, a), b)| (a - b).abs() / a)
                .fold(0.0, f64::max);
            eprintln!("{k} n {} worst {worst:e}", m.len());
        }
    }
}
