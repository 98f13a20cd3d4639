//! `pool stat`, `pool holders` and `why`.

use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    pool_stat_and_holders_show_slots_and_their_holders,
    why_reports_zero_copy_or_the_reason_for_copies,
];

fn pool_stat_and_holders_show_slots_and_their_holders() {
    let sandbox = Sandbox::new();
    let owner = sandbox.child("pool owner");
    let _camera = sandbox.publisher(CAMERA);
    let holder = sandbox.child("image holder");
    let pools = sandbox.json(&["pool", "stat"]);
    assert_eq!(pools["pools"].as_array().unwrap().len(), 2);
    let maps = sandbox.json(&["pool", "stat", "maps"]);
    let maps = &maps["pools"][0];
    assert_eq!((&maps["pid"], &maps["of_topic"]), (&owner.pid().into(), &false.into()));
    assert_eq!(
        (&maps["stats"]["slots_in_use"], &maps["stats"]["attachers"]),
        (&1.into(), &0.into())
    );
    assert!(maps["stats"]["bytes_reserved"].as_u64().unwrap() >= 1000);
    // The held image leaves the queue after a while.
    eventually("the holder holds a retired slot", || {
        let held = sandbox.json(&["pool", "holders", "/camera/rgb"]);
        let processes = held["pools"][0]["processes"].as_array().unwrap().clone();
        let is_holder = |process: &&Value| process["pid"] == holder.pid();
        processes
            .iter()
            .find(is_holder)
            .is_some_and(|process| process["slots"] == 1 && process["retired_slots"] == 1)
    });
    // The age of a slot that is not retired is not recorded.
    let held = sandbox.json(&["pool", "holders", "maps"]);
    let process = &held["pools"][0]["processes"][0];
    assert_eq!((&process["pid"], &process["slots"]), (&owner.pid().into(), &1.into()));
    assert_eq!(process["longest_ms"], Value::Null);
    let held = sandbox.json(&["pool", "holders", "camera.rgb"]);
    let processes = held["pools"][0]["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == holder.pid()).unwrap();
    assert!(process["longest_ms"].as_f64().unwrap() >= 0.0, "{process}");
    let text = sandbox.cenote(&["ls"]).stdout;
    assert!(text.contains("PROCESS") && text.matches(" ATTACHED ").count() == 2, "{text}");
    let text = sandbox.cenote(&["pool", "holders"]).stdout;
    assert!(text.contains("maps") && text.contains("(owner)"), "{text}");
    assert!(sandbox.cenote(&["pool", "stat"]).stdout.contains("camera.rgb (topic)"));
    let why = sandbox.json(&["why", "camera.rgb"]);
    assert_eq!(why["publishers"][0]["oldest_lease"]["pid"], holder.pid());
}

fn why_reports_zero_copy_or_the_reason_for_copies() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let heap = sandbox.child("heap publisher");
    let why = sandbox.json(&["why", "camera.rgb"]);
    assert_eq!(
        (&why["zero_copy"], &why["publishers"][0]["copies"]),
        (&true.into(), &Value::Array(vec![]))
    );
    let why = sandbox.json(&["why", "heap"]);
    let publisher = &why["publishers"][0];
    assert_eq!((&why["zero_copy"], &publisher["pid"]), (&false.into(), &heap.pid().into()));
    let copied = &publisher["copies"][0];
    assert_eq!(
        (&copied["reason"], &copied["count"], &copied["bytes"]),
        (&"heap".into(), &3.into(), &300.into())
    );
    assert_eq!(publisher["process_copies"][0]["reason"], "staged");
    let text = sandbox.cenote(&["why", "heap"]).stdout;
    assert!(text.starts_with("heap: not zero-copy\n") && text.contains("topic.image("), "{text}");
}
