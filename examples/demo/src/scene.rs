//! What the story is told on: a lab, a server in front of it, and three people with a token each.

use anyhow::{Context, anyhow};
use clap::Parser;
use lab::{Lab, LabConfig};
use proxward::cli::token::{ActorType, AddArgs, HashKind, add};
use proxward::cli::{Cli, Command};
use proxward::serve::{Options, Running, start_http};
use tempfile::TempDir;

use crate::client::Client;

/// Everything that runs.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    pub(crate) folder: TempDir,
    server: Running,
    pub(crate) agent: Client,
    pub(crate) reader: Client,
    pub(crate) approver: Client,
}

/// Tools of the agent: everything the story needs but approving.
const AGENT_TOOLS: &[&str] = &[
    "get_nodes",
    "get_vms",
    "get_containers",
    "get_guest_status",
    "get_vm_config",
    "get_task_status",
    "start_vm",
    "stop_vm",
    "proxmox_upload_link",
    "get_transfer",
    "plan_proxmox_destroy",
    "get_proxmox_change_set",
    "apply_proxmox_change_set",
    "delete_vm",
    "delete_container",
];

impl Scene {
    /// Starts the lab and the server, with fresh tokens.
    pub(crate) async fn set(port: u16) -> anyhow::Result<Self> {
        let lab = Lab::start(LabConfig::two_clusters()?).await?;
        let folder = TempDir::new()?;
        lab.write_config(folder.path())?;
        let token =
            |name: &str, person: &str, kind, tools: &[&str], actions: &[&str]| -> anyhow::Result<String> {
                let arguments = AddArgs {
                    name: name.to_owned(),
                    tokens_file: folder.path().join("tokens.json"),
                    tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
                    devices: vec!["*".to_owned()],
                    guests: vec!["*".parse().map_err(|error| anyhow!("{error}"))?],
                    actions: actions
                        .iter()
                        .map(|action| action.parse().map_err(|error| anyhow!("{error}")))
                        .collect::<anyhow::Result<_>>()?,
                    person: Some(person.to_owned()),
                    actor_type: Some(kind),
                    provider: None,
                    provider_tier: None,
                    on_behalf_of: None,
                    expires: None,
                    hash: HashKind::Sha256,
                };
                let made = add(&arguments, jiff::Timestamp::now());
                let problems = |found: Vec<proxward::config::Problem>| {
                    anyhow!("{}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
                };
                Ok(made.map_err(problems)?.as_str().to_owned())
            };
        let all = &["read", "low", "destructive"];
        let agent = token("agent", "robin", ActorType::Agent, AGENT_TOOLS, all)?;
        let reader_tools = &["get_nodes", "get_vms", "get_containers", "get_guest_status"];
        let reader = token("reader", "sam", ActorType::Agent, reader_tools, &["read"])?;
        let approver_tools = &["get_proxmox_change_set", "approve_proxmox_change_set"];
        let approver = token("approver", "alice", ActorType::Human, approver_tools, all)?;

        let file = |name: &str| folder.path().join(name).display().to_string();
        let command_line = [
            "proxward".to_owned(),
            "serve".to_owned(),
            "--transport=streamable-http".to_owned(),
            format!("--port={port}"),
            format!("--clusters-file={}", file("clusters.json")),
            format!("--tokens-file={}", file("tokens.json")),
            format!("--waivers-file={}", file("waivers.json")),
            format!("--state-dir={}", file("state")),
        ];
        let Some(Command::Serve(arguments)) = Cli::try_parse_from(command_line)?.command else {
            return Err(anyhow!("the server's command line was not understood"));
        };
        let server = start_http(&arguments, Options::default()).await.context("the server did not start")?;
        let address = server.address;
        let client = |token: String| Client::new(address, token);
        Ok(Self {
            lab,
            folder,
            server,
            agent: client(agent),
            reader: client(reader),
            approver: client(approver),
        })
    }

    /// Where MCP is served.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address)
    }

    /// Stops the server, which finishes and records what it is at.
    pub(crate) async fn leave(self) {
        self.server.stop().await;
    }

    /// What to paste to go on by hand.
    pub(crate) fn invitation(&self) -> String {
        let (url, agent) = (self.url(), self.agent.token());
        format!(
            "\nThe server keeps running; stop it with Ctrl-C. To go on by hand:\n\n  \
             claude mcp add --transport http proxward {url} --header \"Authorization: Bearer {agent}\"\n\n  \
             PROXWARD_TOKEN={agent} codex mcp add proxward --url {url} --bearer-token-env-var PROXWARD_TOKEN\n\n  \
             curl -sS {url} -H 'Content-Type: application/json' -H 'Authorization: Bearer {agent}' \\\n    \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"get_containers\",\"arguments\":{{\"cluster\":\"alpha\"}}}}}}'\n\n\
             The approver's token, for a second client in a person's hands: {}\n",
            self.approver.token()
        )
    }
}
