//! Garbage collection: adapters whose pod is gone are released, whichever call was lost.
//!
//! An adapter is garbage if no pod of this node has it in two passes, half an interval apart. The
//! daemon's document is read before the list of pods, so a pod that is being added is in the list.
//! Without the list nothing is released. Adapters without the UID of a pod are others', and stay.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::checkpoint::{Claim, Claims};
use crate::cluster::Cluster;
use crate::keeper::{Work, is_in};

/// Claims and adapters that were without a pod in the last pass.
#[derive(Debug, Default)]
pub struct Suspects {
    claims: Vec<Claim>,
    adapters: BTreeSet<String>,
}

impl Suspects {
    /// One pass over the claims and over the daemon's adapters as they were before it; returns what
    /// is to be released.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn pass(
        &mut self,
        cluster: &Cluster,
        claims: &Claims,
        adapters: &[Value],
    ) -> kube::Result<Option<Work>> {
        let pods = cluster.pods().await?;
        let mut now = Suspects::default();
        for claim in claims.values() {
            if !is_alive(cluster, claim, &pods).await? {
                now.claims.push(claim.clone());
            }
        }
        for adapter in adapters {
            let owner = &adapter["owner"];
            let is_claimed = owner["claim"].as_str().is_some_and(|uid| claims.contains_key(uid));
            let is_ours = owner["claim"].is_string() || owner["cni"].is_string();
            if is_ours && !is_claimed && owner["uid"].is_string() && !is_in(&pods, &owner["uid"]) {
                now.adapters.extend(adapter["name"].as_str().map(str::to_owned));
            }
        }
        let claims: Vec<Claim> =
            now.claims.iter().filter(|claim| self.claims.contains(claim)).cloned().collect();
        let adapters: BTreeSet<String> =
            now.adapters.intersection(&self.adapters).cloned().collect();
        *self = now;
        let is_any = !(claims.is_empty() && adapters.is_empty());
        Ok(is_any.then_some(Work::Release(claims, adapters)))
    }
}

/// `true` if a pod of this node has the claim: one for which it was prepared, or one for which it
/// is reserved now. A claim of the same name with another UID is another claim.
async fn is_alive(cluster: &Cluster, claim: &Claim, pods: &BTreeSet<String>) -> kube::Result<bool> {
    if claim.pods.iter().any(|pod| pods.contains(pod)) {
        return Ok(true);
    }
    let resource = cluster.claim(&claim.namespace, &claim.name).await?;
    let resource = resource.filter(|it| it.metadata.uid.as_deref() == Some(&claim.uid));
    let reserved = resource.and_then(|it| it.status?.reserved_for).unwrap_or_default();
    // Pods of a group are not listed there.
    Ok(reserved.iter().any(|it| it.resource != "pods" || pods.contains(&it.uid)))
}
