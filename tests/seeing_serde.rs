//! Snapshots as JSON.
#![cfg(all(feature = "tokio", feature = "serde"))]

mod field;

use field::{Field, ms, settle};
use request_balancer::{Health, Target};
use serde_json::{json, to_value};

#[tokio::test(start_paused = true)]
async fn a_snapshot_has_names_and_seconds() {
    let field = Field::new("[rules]\nr = '1/1s'\nbulk = { priority = 2 }\n[lanes.2]\nname = 'slow'");
    field.all_ok([field.go("r", 1, "first")]).await;
    let _waiting = field.go("r", 1, "second");
    settle().await;
    field.balancer.hold(Target::rule("bulk"), ms(1_500)).unwrap();
    field.balancer.hold(Target::key(1), ms(2_250)).unwrap();
    field.balancer.pause("bulk").unwrap();
    let expected = json!({
        "waiting": 1, "in_flight": 0, "keys": 1, "held": null, "next_wake": 1.0,
        "lanes": [
            { "name": "1", "priority": 1, "waiting": 1, "in_flight": 0, "bypassed": 0 },
            { "name": "slow", "priority": 2, "waiting": 0, "in_flight": 0, "bypassed": 0 },
        ],
        "rules": [
            { "name": "r", "waiting": 1, "in_flight": 0, "held": null, "paused": false },
            { "name": "bulk", "waiting": 0, "in_flight": 0, "held": 1.5, "paused": true },
        ],
    });
    assert_eq!(to_value(field.balancer.snapshot()).unwrap(), expected);
    let expected = json!({ "waiting": 1, "in_flight": 0, "held": 2.25 });
    assert_eq!(to_value(field.balancer.key(1)).unwrap(), expected);
    assert_eq!(to_value([Health::Ok, Health::Limited, Health::Stalled]).unwrap(), json!(["ok", "limited", "stalled"]));
}
