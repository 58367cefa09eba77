' Opens Greenroom by a double click, without a console window. Says what to do where Python is missing.
Option Explicit

Dim shell, files, start, candidate, names

Set shell = CreateObject("WScript.Shell")
Set files = CreateObject("Scripting.FileSystemObject")
start = files.BuildPath(files.GetParentFolderName(files.GetParentFolderName(WScript.ScriptFullName)), "start.py")

' What has a console to be asked, what has none to be started.
For Each candidate In Array("py -3|pyw -3", "python|pythonw", "python3|pythonw")
    names = Split(candidate, "|")
    If IsNewEnough(names(0)) Then
        shell.Run names(1) & " """ & start & """ --window", 1, False
        WScript.Quit 0
    End If
Next

MsgBox "Greenroom needs Python 3.11 or newer, which was not found here." & vbCrLf & vbCrLf & _
    "Install it from python.org or the Microsoft Store, then open Greenroom again.", vbExclamation, "Greenroom"
WScript.Quit 1

Function IsNewEnough(python)
    Dim code
    IsNewEnough = False
    On Error Resume Next
    code = shell.Run(python & " -c ""import sys; sys.exit(sys.version_info < (3, 11))""", 0, True)
    If Err.Number = 0 Then IsNewEnough = (code = 0)
    On Error GoTo 0
End Function
