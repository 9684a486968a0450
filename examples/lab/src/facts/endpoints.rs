//! Which endpoints the lab has, by path and method.

/// Paths below one path, each with its methods.
type Tree = &'static [(&'static str, &'static [&'static str])];

/// The methods of a path that lists and takes new entries.
const COLLECTION: &[&str] = &["GET", "POST"];
/// The methods of a path that names one entry.
const ENTRY: &[&str] = &["GET", "PUT", "DELETE"];
const GET: &[&str] = &["GET"];
const POST: &[&str] = &["POST"];
const PUT: &[&str] = &["PUT"];

/// The paths below the firewall of a scope, as far as that scope has them.
const FIREWALL: Tree = &[("/rules", COLLECTION), ("/rules/{pos}", ENTRY), ("/options", &["GET", "PUT"])];

/// What the cluster and the guests have besides.
const FIREWALL_SETS: Tree = &[
    ("/aliases", COLLECTION),
    ("/aliases/{name}", ENTRY),
    ("/ipset", COLLECTION),
    ("/ipset/{name}", &["GET", "POST", "DELETE"]),
    ("/ipset/{name}/{cidr}", ENTRY),
    ("/refs", GET),
];

/// What only the cluster has.
const FIREWALL_CLUSTER: Tree = &[
    ("/groups", COLLECTION),
    ("/groups/{group}", &["GET", "POST", "DELETE"]),
    ("/groups/{group}/{pos}", ENTRY),
    ("/macros", GET),
];

const CLUSTER: Tree = &[
    ("/version", GET),
    ("/access/permissions", GET),
    ("/cluster/status", GET),
    ("/cluster/resources", GET),
    ("/cluster/nextid", GET),
    ("/cluster/tasks", GET),
    ("/cluster/ha/groups", COLLECTION),
    ("/cluster/ha/resources", COLLECTION),
    ("/cluster/ha/resources/{sid}", ENTRY),
    ("/cluster/ha/resources/{sid}/migrate", POST),
    ("/cluster/ha/resources/{sid}/relocate", POST),
    ("/cluster/ha/rules", COLLECTION),
    ("/cluster/ha/rules/{rule}", ENTRY),
    ("/cluster/ha/status/current", GET),
    ("/pools", &["GET", "POST", "PUT", "DELETE"]),
    ("/pools/{poolid}", ENTRY),
];

const NODE: Tree = &[
    ("", GET),
    ("/{node}/status", GET),
    ("/{node}/config", GET),
    ("/{node}/query-url-metadata", GET),
    ("/{node}/tasks", GET),
    ("/{node}/tasks/{upid}", &["DELETE"]),
    ("/{node}/tasks/{upid}/status", GET),
    ("/{node}/tasks/{upid}/log", GET),
    ("/{node}/vzdump", POST),
    ("/{node}/vzdump/extractconfig", GET),
    ("/{node}/storage", GET),
    ("/{node}/storage/{storage}/status", GET),
    ("/{node}/storage/{storage}/content", COLLECTION),
    ("/{node}/storage/{storage}/content/{volume}", &["GET", "POST", "PUT", "DELETE"]),
    ("/{node}/storage/{storage}/download-url", POST),
    ("/{node}/storage/{storage}/upload", POST),
    ("/{node}/qemu", COLLECTION),
    ("/{node}/lxc", COLLECTION),
];

/// What guests of both kinds have.
const GUEST: Tree = &[
    ("", &["DELETE"]),
    ("/pending", GET),
    ("/status/current", GET),
    ("/status/start", POST),
    ("/status/stop", POST),
    ("/status/shutdown", POST),
    ("/status/reboot", POST),
    ("/status/suspend", POST),
    ("/status/resume", POST),
    ("/snapshot", COLLECTION),
    ("/snapshot/{snapname}", &["DELETE"]),
    ("/snapshot/{snapname}/config", &["GET", "PUT"]),
    ("/snapshot/{snapname}/rollback", POST),
    ("/clone", POST),
    ("/migrate", COLLECTION),
    ("/resize", PUT),
];

const QEMU: Tree = &[
    ("/config", &["GET", "POST", "PUT"]),
    ("/status/reset", POST),
    ("/agent", POST),
    ("/agent/exec", POST),
    ("/agent/exec-status", GET),
    ("/agent/file-read", GET),
    ("/agent/file-write", POST),
    ("/agent/get-host-name", GET),
    ("/agent/get-osinfo", GET),
    ("/agent/network-get-interfaces", GET),
    ("/agent/ping", POST),
];

const LXC: Tree = &[("/config", &["GET", "PUT"]), ("/interfaces", GET)];

/// The lists above and the paths they hang on.
const TREES: &[(&str, Tree)] = &[
    ("", CLUSTER),
    ("/nodes", NODE),
    ("/nodes/{node}/qemu/{vmid}", GUEST),
    ("/nodes/{node}/qemu/{vmid}", QEMU),
    ("/nodes/{node}/lxc/{vmid}", GUEST),
    ("/nodes/{node}/lxc/{vmid}", LXC),
    ("/cluster/firewall", FIREWALL),
    ("/cluster/firewall", FIREWALL_SETS),
    ("/cluster/firewall", FIREWALL_CLUSTER),
    ("/nodes/{node}/firewall", FIREWALL),
    ("/nodes/{node}/qemu/{vmid}/firewall", FIREWALL),
    ("/nodes/{node}/qemu/{vmid}/firewall", FIREWALL_SETS),
    ("/nodes/{node}/lxc/{vmid}/firewall", FIREWALL),
    ("/nodes/{node}/lxc/{vmid}/firewall", FIREWALL_SETS),
];

/// The endpoints of the lab, as method and path template.
pub fn endpoints() -> impl Iterator<Item = (&'static str, String)> {
    TREES.iter().flat_map(|(base, tree)| {
        tree.iter().flat_map(move |(path, methods)| {
            methods.iter().map(move |method| (*method, format!("{base}{path}")))
        })
    })
}
