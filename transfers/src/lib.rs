//! Single-use transfer links: a sans-IO store with atomic spend, caps, expiry and outcomes
