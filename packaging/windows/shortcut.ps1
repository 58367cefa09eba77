# A Start-menu entry that opens Greenroom without a console window. "py packaging\start.py install" calls this.
# By itself: right click, "Run with PowerShell".
param(
    [string]$Shortcut = (Join-Path ([Environment]::GetFolderPath("Programs")) "Greenroom.lnk"),
    [string]$Python = ""
)
$ErrorActionPreference = "Stop"

$root = Split-Path -Parent (Split-Path -Parent $PSScriptRoot)
$icon = Join-Path $PSScriptRoot "greenroom.ico"
$link = (New-Object -ComObject WScript.Shell).CreateShortcut($Shortcut)
if ($Python) {
    $link.TargetPath = $Python
    $link.Arguments = '"{0}" --window' -f (Join-Path $root "packaging\start.py")
} else {
    # Greenroom.vbs looks for Python at every start, and says so where there is none.
    $link.TargetPath = Join-Path $env:SystemRoot "System32\wscript.exe"
    $link.Arguments = '"{0}"' -f (Join-Path $PSScriptRoot "Greenroom.vbs")
}
$link.WorkingDirectory = $root
$link.Description = "Chat with Mixture-of-Experts models that are bigger than your graphics card"
if (Test-Path $icon) {
    $link.IconLocation = $icon
}
$link.Save()
