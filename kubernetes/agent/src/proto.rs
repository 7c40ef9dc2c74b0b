//! The kubelet's interfaces, from the files in `proto`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

/// DRA drivers, version v1.
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// Health of a driver's devices.
pub mod health {
    tonic::include_proto!("v1alpha1");
}

/// Registration of plugins.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
