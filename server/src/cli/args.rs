//! The flags of `proxward serve` (and of `proxward check`, which runs the same start code).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::audit::Redaction;

/// Where the server's configuration lies unless flags say otherwise.
pub const CONFIG_DIR: &str = "/etc/proxward";
/// Where the server keeps its state unless `--state-dir` says otherwise.
pub const STATE_DIR: &str = "/var/lib/proxward";

/// How MCP clients reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Transport {
    /// One client, over standard input and output.
    #[default]
    Stdio,
    /// Many clients, over HTTP.
    StreamableHttp,
}

/// How log lines on standard error look. The audit file is JSON whatever is chosen here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum AuditFormat {
    /// For reading in a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The flags of `proxward serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// How clients reach the server.
    #[arg(short, long, value_enum, default_value_t)]
    pub transport: Transport,

    /// Address to listen on for streamable-http: an IP address or `localhost`.
    #[arg(short = 'H', long, value_name = "ADDR", default_value = "127.0.0.1", value_parser = parse_host)]
    pub host: IpAddr,

    /// Port to listen on for streamable-http.
    #[arg(short, long, default_value_t = 30030)]
    pub port: u16,

    /// With stdio: also listen here for uploads, so that link tools can be offered.
    #[arg(long, value_name = "ADDR:PORT")]
    pub transfer_listen: Option<SocketAddr>,

    /// Serve counters for Prometheus at `/metrics` here, on a listener of their own; off unless named.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics_listen: Option<SocketAddr>,

    /// With stdio: act with the rights of this entry of the tokens file. Without it, reads only.
    #[arg(long, value_name = "NAME")]
    pub stdio_principal: Option<String>,

    /// The clusters and the policy.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("clusters.json"))]
    pub clusters_file: PathBuf,

    /// Who may call [default for streamable-http: /etc/proxward/tokens.json].
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,

    /// Time-boxed exceptions from protection; a missing file means none.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("waivers.json"))]
    pub waivers_file: PathBuf,

    /// Where change sets, keys and the audit trail are kept.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,

    /// The change-set database [default: state.db in the state directory].
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,

    /// Laboratory only: lift protection; a plan against a protected guest is approved at its creation.
    #[arg(long)]
    pub lab_mode: bool,

    /// Let callers without a token read everything. Refused beyond loopback.
    #[arg(long)]
    pub allow_no_auth: bool,

    /// The certificate chain for HTTPS, PEM.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key for HTTPS, PEM, mode 0600.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// A Host that requests may name (without a port: on any port); may be repeated.
    #[arg(long, value_name = "HOST")]
    pub allowed_host: Vec<String>,

    /// An Origin that browsers may send requests from; may be repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub allowed_origin: Vec<String>,

    /// How log lines on standard error look; the audit file is always JSON.
    #[arg(long, value_enum, default_value_t)]
    pub audit_format: AuditFormat,

    /// The audit trail [default: audit.jsonl in the state directory].
    #[arg(long, value_name = "FILE")]
    pub audit_log_file: Option<PathBuf>,

    /// What to do in the audit trail with values that callers sent.
    #[arg(long, value_enum, default_value_t)]
    pub audit_redact: Redaction,

    /// The 32-byte key for `--audit-redact hmac` [default: keys/audit.key in the state directory].
    #[arg(long, value_name = "FILE")]
    pub audit_hmac_key_file: Option<PathBuf>,
}

impl ServeArgs {
    /// The address of the HTTP listener.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// The audit file.
    pub fn audit_file(&self) -> PathBuf {
        self.audit_log_file.clone().unwrap_or_else(|| self.state_dir.join("audit.jsonl"))
    }

    /// The change-set database.
    pub fn state_db(&self) -> PathBuf {
        self.state_file.clone().unwrap_or_else(|| self.state_dir.join("state.db"))
    }

    /// What a `proxward change` line on this server's own host needs at its end to reach its change sets.
    pub fn change_flags(&self) -> String {
        if self.state_dir == std::path::Path::new(STATE_DIR) {
            String::new()
        } else {
            format!(" --state-dir {}", self.state_dir.display())
        }
    }

    /// The tokens file, when this way of serving reads one: always over HTTP unless `--allow-no-auth` stands
    /// alone; over stdio when a principal or a file is named.
    pub fn tokens(&self) -> Option<PathBuf> {
        let needed = match self.transport {
            Transport::StreamableHttp => !self.allow_no_auth,
            Transport::Stdio => self.stdio_principal.is_some(),
        };
        match &self.tokens_file {
            Some(path) => Some(path.clone()),
            None => needed.then(|| config_file("tokens.json")),
        }
    }
}

pub(super) fn config_file(name: &str) -> PathBuf {
    PathBuf::from(CONFIG_DIR).join(name)
}

fn parse_host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| "expected an IP address or `localhost`".to_owned())
}
