use super::{FirewallScope, LogLevel, Policy};
use crate::{client::Client, error::Error, ids::Digest, wire::Form};

/// An option of a firewall that a change can unset, so that it has PVE's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FirewallOption {
    /// `enable`
    Enable,
    /// `policy_in`
    PolicyIn,
    /// `policy_out`
    PolicyOut,
    /// `policy_forward`
    PolicyForward,
    /// `log_level_in`
    LogLevelIn,
    /// `log_level_out`
    LogLevelOut,
    /// `dhcp`
    Dhcp,
    /// `ndp`
    Ndp,
    /// `radv`
    Radv,
    /// `ipfilter`
    Ipfilter,
    /// `macfilter`
    Macfilter,
}

impl FirewallOption {
    fn word(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::PolicyIn => "policy_in",
            Self::PolicyOut => "policy_out",
            Self::PolicyForward => "policy_forward",
            Self::LogLevelIn => "log_level_in",
            Self::LogLevelOut => "log_level_out",
            Self::Dhcp => "dhcp",
            Self::Ndp => "ndp",
            Self::Radv => "radv",
            Self::Ipfilter => "ipfilter",
            Self::Macfilter => "macfilter",
        }
    }

    /// Whether a scope has the option.
    #[must_use]
    pub fn is_of(self, scope: &FirewallScope) -> bool {
        match self {
            Self::Enable => !matches!(scope, FirewallScope::Group(_)),
            Self::PolicyIn | Self::PolicyOut => {
                matches!(scope, FirewallScope::Cluster | FirewallScope::Guest(_))
            }
            Self::PolicyForward => matches!(scope, FirewallScope::Cluster),
            Self::LogLevelIn | Self::LogLevelOut | Self::Ndp => {
                matches!(scope, FirewallScope::Node(_) | FirewallScope::Guest(_))
            }
            Self::Dhcp | Self::Radv | Self::Ipfilter | Self::Macfilter => {
                matches!(scope, FirewallScope::Guest(_))
            }
        }
    }
}

/// What to change about a firewall's options. What is `None` stays; at least one thing changes. Not every scope has
/// every option: [`FirewallOption::is_of`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirewallOptionsUpdate {
    /// Whether the firewall is on. Switching the cluster's on without a rule that lets management in can lock it out.
    pub enable: Option<bool>,
    /// What happens to incoming traffic no rule is for.
    pub policy_in: Option<Policy>,
    /// What happens to outgoing traffic no rule is for.
    pub policy_out: Option<Policy>,
    /// What happens to forwarded traffic no rule is for; not [`Policy::Reject`] (PVE 8.3 and later).
    pub policy_forward: Option<Policy>,
    /// How much incoming traffic is logged.
    pub log_level_in: Option<LogLevel>,
    /// How much outgoing traffic is logged.
    pub log_level_out: Option<LogLevel>,
    /// Whether DHCP passes.
    pub dhcp: Option<bool>,
    /// Whether neighbour discovery passes.
    pub ndp: Option<bool>,
    /// Whether the guest may send router advertisements.
    pub radv: Option<bool>,
    /// Whether the guest is held to its own addresses.
    pub ipfilter: Option<bool>,
    /// Whether the guest is held to its own hardware address.
    pub macfilter: Option<bool>,
    /// What to unset.
    pub unset: Vec<FirewallOption>,
}

impl FirewallOptionsUpdate {
    fn fields(&self) -> Vec<(FirewallOption, String)> {
        use FirewallOption as O;
        let flags = [
            (O::Enable, self.enable),
            (O::Dhcp, self.dhcp),
            (O::Ndp, self.ndp),
            (O::Radv, self.radv),
            (O::Ipfilter, self.ipfilter),
            (O::Macfilter, self.macfilter),
        ];
        let policies = [
            (O::PolicyIn, self.policy_in),
            (O::PolicyOut, self.policy_out),
            (O::PolicyForward, self.policy_forward),
        ];
        let levels = [(O::LogLevelIn, self.log_level_in), (O::LogLevelOut, self.log_level_out)];
        let flags = flags.into_iter().filter_map(|(option, on)| Some((option, u8::from(on?).to_string())));
        let policies =
            policies.into_iter().filter_map(|(option, policy)| Some((option, policy?.to_string())));
        let levels = levels.into_iter().filter_map(|(option, level)| Some((option, level?.to_string())));
        flags.chain(policies).chain(levels).collect()
    }

    fn form(&self, scope: &FirewallScope) -> Result<Form, Error> {
        let fields = self.fields();
        if fields.is_empty() && self.unset.is_empty() {
            return Err(Error::argument("update", "it changes nothing; set or unset an option"));
        }
        if self.policy_forward == Some(Policy::Reject) {
            return Err(Error::argument("policy_forward", "REJECT; expected ACCEPT or DROP"));
        }
        for option in fields.iter().map(|(option, _)| option).chain(&self.unset) {
            if !option.is_of(scope) {
                return Err(Error::argument(option.word(), "the scope has no such option"));
            }
        }
        if let Some((option, _)) = fields.iter().find(|(option, _)| self.unset.contains(option)) {
            return Err(Error::argument(option.word(), "both set and unset; do one of them"));
        }
        let form =
            fields.into_iter().fold(Form::new(), |form, (option, value)| form.put(option.word(), value));
        Ok(form.put_list("delete", self.unset.iter().map(|option| option.word())))
    }
}

impl Client {
    /// Changes the options of the cluster's, a node's or a guest's firewall (`PUT …/firewall/options`; privileges:
    /// [`FirewallScope`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the digest is not that of the options. An option the
    /// scope does not have is refused before anything is sent.
    pub async fn update_firewall_options(
        &self,
        scope: &FirewallScope,
        update: &FirewallOptionsUpdate,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        let form = update.form(scope)?.put_some("digest", digest);
        self.put(scope.options()?, form).await?.done()
    }
}
