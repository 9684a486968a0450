//! Following a task to its end.

use std::time::Duration;

use proxmox_api::{ErrorKind, TaskExit, TaskFilter, TaskStatus, WaitPolicy, Waited};

use crate::support::{Answer, UPID, data, http, pair};

fn policy(deadline: Duration) -> WaitPolicy {
    WaitPolicy { first: Duration::from_millis(1), longest: Duration::from_millis(5), deadline }
}

#[tokio::test]
async fn a_wait_outlives_what_may_pass() {
    let (server, client) = pair(|n, _| match n {
        0 => data(r#"{"status":"running"}"#),
        1 => Answer::Close(http("595 Connection refused", "")),
        2 => Answer::Close(http("500 something odd", "")),
        3 | 4 => Answer::Cut(Vec::new()),
        5 => data("null"),
        6 => data(r#"{"status":"running","exitstatus":""}"#),
        _ => data(r#"{"status":"stopped","exitstatus":"WARNINGS: 2"}"#),
    })
    .await;
    let waited = client.wait_task(&UPID.parse().unwrap(), &policy(Duration::from_secs(60))).await.unwrap();
    assert_eq!(waited, Waited::Ended(TaskExit::Warnings(2)));
    assert_eq!(server.seen().len(), 8);
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_and_says_what_is_known() {
    let (_server, client) = pair(|_, _| data(r#"{"status":"running"}"#)).await;
    let upid = UPID.parse().unwrap();
    let waited = client.wait_task(&upid, &policy(Duration::from_millis(50))).await.unwrap();
    assert_eq!(waited, Waited::StillRunning);

    let (_server, client) = pair(|_, _| Answer::Close(http("595 No route to host", ""))).await;
    let error = client.wait_task(&upid, &policy(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeUnreachable, "{error}");
}

#[tokio::test]
async fn a_wait_ends_at_once_where_asking_again_cannot_help() {
    let unknown =
        r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"upid":"no such task"}}"#;
    for (status, body, kind) in [
        ("400 Parameter verification failed.", unknown, ErrorKind::NotFound),
        ("401 No ticket", "", ErrorKind::Unauthorized),
        ("403 Permission check failed (/nodes/pve1, Sys.Audit)", "", ErrorKind::PermissionDenied),
    ] {
        let (server, client) = pair(move |_, _| Answer::Close(http(status, body))).await;
        let error =
            client.wait_task(&UPID.parse().unwrap(), &policy(Duration::from_secs(60))).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn cs_30_the_status_of_a_task_is_never_guessed() {
    let status = |body: &'static str| async move {
        let (_server, client) = pair(move |_, _| data(body)).await;
        let status = client.task_status(&UPID.parse().unwrap()).await;
        status.map(|TaskStatus { running, exit, json }| {
            assert!(json.contains_key("status"));
            (running, exit)
        })
    };
    let ended = |exit| (false, Some(exit));
    assert_eq!(status(r#"{"status":"stopped","exitstatus":"OK"}"#).await.unwrap(), ended(TaskExit::Ok));
    let odd = status(r#"{"status":"stopped","exitstatus":"unexpected status"}"#).await.unwrap();
    assert_eq!(odd, ended(TaskExit::Failed("unexpected status".to_owned())));
    let silent = status(r#"{"status":"stopped"}"#).await.unwrap();
    assert!(!silent.0 && silent.1.is_some_and(|exit| !exit.succeeded()));
    assert_eq!(status(r#"{"status":"running"}"#).await.unwrap(), (true, None));
    for body in [r#"{"status":"paused"}"#, r#"{"exitstatus":"OK"}"#, "[]"] {
        assert_eq!(status(body).await.unwrap_err().kind(), ErrorKind::Malformed, "{body}");
    }
}

#[tokio::test]
async fn a_task_list_tells_running_from_ended() {
    let upid = |pid: u32| format!("UPID:pve1:{pid:08X}:00041584:6B0CE067:qmstart:102:root@pam!full:");
    let (a, b, c, d) = (upid(1), upid(2), upid(3), upid(4));
    let rows = format!(
        r#"[{{"upid":"{a}"}},{{"upid":"{b}","status":"RUNNING"}},{{"upid":"{c}","status":"OK","endtime":5}},
            {{"upid":"{d}","endtime":"6"}},{{"upid":"garbage","status":"OK"}}]"#
    );
    let (_server, client) = pair(move |_, _| data(&rows)).await;
    let tasks = client.tasks(&"pve1".parse().unwrap(), &TaskFilter::default()).await.unwrap();
    assert_eq!(tasks.skipped, 1);
    let exits: Vec<Option<bool>> =
        tasks.iter().map(|task| task.exit.as_ref().map(TaskExit::succeeded)).collect();
    assert_eq!(exits, [None, None, Some(true), Some(false)]);
    assert_eq!(tasks.items[3].endtime, Some(6));
}

#[tokio::test]
async fn a_log_comes_with_its_total() {
    let log = r#"{"data":[{"n":1,"t":"generating"},{"n":"2","t":"TASK OK"},{"t":"no number"}],"total":2}"#;
    let (_server, client) = pair(move |_, _| Answer::Keep(http("200 OK", log))).await;
    let log = client.task_log(&UPID.parse().unwrap(), 0, 50).await.unwrap();
    assert_eq!((log.len(), log.skipped, log.total), (2, 1, Some(2)));
    assert_eq!(log.items[1].t, "TASK OK");
}
