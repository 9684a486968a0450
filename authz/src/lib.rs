//! Fail-closed authorization: bearer tokens, scopes, guest grants, protection and waivers, as pure functions
