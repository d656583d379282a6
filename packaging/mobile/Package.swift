// swift-tools-version:5.9
// The Swift package of stele.xcframework, next to it in the folder that apple.sh writes.
import PackageDescription

let package = Package(
    name: "stele",
    platforms: [.iOS("17.0"), .macOS("14.0")],
    products: [.library(name: "stele", targets: ["stele"])],
    targets: [.binaryTarget(name: "stele", path: "stele.xcframework")],
    cxxLanguageStandard: .cxx20
)
