//! A state with many change sets: a start reads what it needs of them and serves at once.
//!
//! `PROXWARD_MANY_SETS=10000` makes as many; by default a few hundred are enough to see that nothing breaks.

use std::time::Instant;

use crate::program::Program;
use crate::support::Stage;
use serde_json::json;

const GUESTS: &[u32] = &[201, 104];

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_many_sets_serves_and_knows_all_of_them() {
    let sets = std::env::var("PROXWARD_MANY_SETS").map_or(300_u64, |text| text.parse().unwrap());
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let mut last = json!(null);
    for n in 0..sets {
        let vmid = GUESTS[usize::try_from(n).unwrap() % GUESTS.len()];
        let plan = agent
            .call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"}))
            .await
            .unwrap();
        last = json!({"change_set_id": plan["change_set_id"]});
        // The last of each guest stays pending, the rest have ended.
        if n + (GUESTS.len() as u64) < sets {
            agent.call("cancel_change_set", last.clone()).await.unwrap();
        }
        if n % 500 == 0 {
            stage.alpha().clear_requests();
        }
    }
    assert_eq!(server.terminate().code, Some(0));

    let began = Instant::now();
    let (server, address) = Program::serve(&stage.command_line(&[]));
    println!("a start with {sets} sets takes {:?}", began.elapsed());
    let agent = stage.client(address, "agent");
    assert_eq!(agent.call("get_proxmox_change_set", last).await.unwrap()["state"], "planned");
    let pending = agent.call("list_change_sets", json!({})).await.unwrap();
    assert_eq!(
        pending["items"].as_array().unwrap().len(),
        GUESTS.len().min(usize::try_from(sets).unwrap()),
        "{pending}"
    );
    assert_eq!(server.terminate().code, Some(0));
}
