//! The guest agent: its preconditions, files with PVE's limits, programs that are told about once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{call, call_as};
use lab::{Lab, LabCluster, LabConfig};
use serde_json::json;

async fn lab() -> (Lab, LabCluster) {
    let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
    let alpha = lab.cluster("alpha");
    (lab, alpha)
}

const AGENT: &str = "/nodes/pve1/qemu/100/agent";

#[tokio::test]
async fn every_precondition_has_its_own_words() {
    let (_lab, alpha) = lab().await;
    let reason = async |vm: &str| call(&alpha, "POST", &format!("/nodes/{vm}/agent/ping"), "").await.reason;
    assert_eq!(reason("pve1/qemu/101").await, "No QEMU guest agent configured");
    assert_eq!(reason("pve2/qemu/104").await, "VM 104 is not running");
    assert_eq!(reason("pve2/qemu/105").await, "QEMU guest agent is not running");
    assert_eq!(reason("pve1/qemu/100").await, "OK");
    alpha.set_agent_runs(100, false).unwrap();
    assert_eq!(reason("pve1/qemu/100").await, "QEMU guest agent is not running");
}

#[tokio::test]
async fn a_written_file_is_the_guests_file_and_reads_back_in_parts() {
    let (_lab, alpha) = lab().await;
    // 0xff and 0x00 need base64, which is not encoded once more.
    let got =
        call(&alpha, "POST", &format!("{AGENT}/file-write"), "file=/tmp/b&content=AP8BQQ%3D%3D&encode=0")
            .await;
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(std::fs::read(alpha.guest_root(100).join("tmp/b")).unwrap(), [0, 0xff, 1, b'A']);
    let read = async |query: &str| {
        call(&alpha, "GET", &format!("{AGENT}/file-read?file=/tmp/b{query}"), "").await.data()
    };
    assert_eq!(read("").await, json!({ "content": "\u{0}\u{ff}\u{1}A", "bytes-read": 4 }));
    assert_eq!(read("&decode=0").await["content"], "AP8BQQ==");
    assert_eq!(
        read("&offset=1&count=2&decode=0").await,
        json!({ "content": "/wE=", "bytes-read": 2, "truncated": 1 })
    );
    // Each write is the whole file.
    call(&alpha, "POST", &format!("{AGENT}/file-write"), "file=/tmp/b&content=%C3%BC").await.data();
    assert_eq!(std::fs::read(alpha.guest_root(100).join("tmp/b")).unwrap(), [0xfc], "a byte of Latin-1");
    assert_eq!(alpha.effects().len(), 2);
}

#[tokio::test]
async fn what_pve_and_the_agent_refuse_is_refused() {
    let (_lab, alpha) = lab().await;
    let write = async |body: String| call(&alpha, "POST", &format!("{AGENT}/file-write"), &body).await;
    let got = write("file=/tmp/e&content=%E2%82%ACuro".to_owned()).await;
    assert_eq!((got.status, got.reason.as_str()), (500, "Wide character in subroutine entry"));
    let got = write(format!("file=/tmp/e&content={}", "x".repeat(61_441))).await;
    assert_eq!(got.json()["errors"]["content"], "value may only be 61440 characters long");
    assert_eq!(write(format!("file=/tmp/e&content={}", "x".repeat(61_440))).await.status, 200);
    let got = write("file=/nowhere/e&content=x".to_owned()).await;
    let missing = "(mode: 'wb'): No such file or directory";
    assert_eq!(got.reason, format!("Agent error: failed to open file '/nowhere/e' {missing}"));
    let got = call(&alpha, "GET", &format!("{AGENT}/file-read?file=/tmp/x"), "").await;
    let missing = "(mode: 'r'): No such file or directory";
    assert_eq!(got.reason, format!("Agent error: failed to open file '/tmp/x' {missing}"));
    let got = call_as(&alpha, "audit@pve!lab", "POST", &format!("{AGENT}/exec"), "command=id").await;
    assert_eq!(got.reason, "Permission check failed (/vms/100, VM.GuestAgent.Unrestricted)");
}

#[tokio::test]
async fn a_program_runs_and_its_end_is_told_once() {
    let (_lab, alpha) = lab().await;
    let start = async |body: &str| {
        let got = call(&alpha, "POST", &format!("{AGENT}/exec"), body).await.data();
        let pid = got["pid"].as_u64().unwrap();
        let path = format!("{AGENT}/exec-status?pid={pid}");
        loop {
            let status = call(&alpha, "GET", &path, "").await.data();
            if status["exited"] == 1 {
                let again = call(&alpha, "GET", &path, "").await;
                assert_eq!(again.reason, format!("Agent error: PID {pid} does not exist"));
                return status;
            }
        }
    };
    assert_eq!(
        start("command=echo&command=a&command=b%20c").await,
        json!({ "exited": 1, "exitcode": 0, "out-data": "a b c\n" })
    );
    assert_eq!(start("command=cat&input-data=xx").await["out-data"], "xx");
    // Nothing is looked up on the host: what is not known is not there.
    assert_eq!(start("command=/bin/true").await["exitcode"], 127);
    assert_eq!(start("command=sh&command=-c&command=touch%20/tmp/x").await["exitcode"], 127);
    let discard = include_str!("../src/node/scripts/discard.sh");
    std::fs::write(alpha.guest_root(100).join("tmp/part"), "x").unwrap();
    let discard = percent_encoding::utf8_percent_encode(discard, percent_encoding::NON_ALPHANUMERIC);
    let line = format!("command=/bin/sh&command=-c&command={discard}&command=proxward&command=/tmp/part");
    assert_eq!(start(&line).await["exitcode"], 0);
    assert!(!alpha.guest_root(100).join("tmp/part").exists());
}
